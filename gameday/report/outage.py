"""The time that a game-day kept GPUs out of work, summed over runs, beside the same outages unnoticed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pydantic import BaseModel, ConfigDict, Field

from gameday.values.pricing import OutageTerms

RULE = (
    "Every GPU of a target counts from the fault, or from the cordon or taint that came before it, until the node took "
    "work again; a target that stayed schedulable counts nothing."
)


class OutOfWork(BaseModel):
    """The GPU time of one run that its game-day cost. Unknown is None, with the reason, and never 0."""

    model_config = ConfigDict(frozen=True)

    gpu_hours: float | None = Field(allow_inf_nan=False)
    gpus: int = Field(default=0, description="of the nodes that were out of work")
    why: str = Field(default="", description="why it is unknown; empty if it is known")
    terms: OutageTerms | None = Field(default=None, description="None in runs older than these terms")

    @property
    def unnoticed_gpu_hours(self) -> float | None:
        """The same outage, if a person noticed it after the assumed hours and it then ended as fast."""
        if self.gpu_hours is None or self.terms is None:
            return None
        return self.gpu_hours + self.gpus * self.terms.hours_until_noticed

    @property
    def price(self) -> float | None:
        return self.terms.price_per_gpu_hour if self.terms else None


class Money(BaseModel):
    """The cost of outages in one currency, over the runs with a price in it."""

    model_config = ConfigDict(frozen=True)

    currency: str
    runs: int
    cost: float
    unnoticed: float


class OutageTotal(BaseModel):
    """The sum over runs; rehearsals (`virtual` GPUs) are apart from real clusters."""

    model_config = ConfigDict(frozen=True)

    virtual: bool
    known: int = Field(description="runs in the sum")
    unknown: int = Field(description="runs with an unknown time out of work, which are in no sum")
    gpu_hours: float | None = Field(description="None if no run's is known")
    compared: int = Field(description="runs in the sums of the assumption: those that have it in their history")
    compared_gpu_hours: float
    unnoticed_gpu_hours: float
    hours_until_noticed: tuple[float, ...] = Field(description="the assumptions that the runs' profiles made")
    money: tuple[Money, ...]


def outage_totals(runs: Iterable[tuple[bool, OutOfWork | None]]) -> tuple[OutageTotal, ...]:
    """Sum up runs, real clusters first; a kind without runs is left out.

    Args:
        runs: For each run, whether it was a rehearsal, and its time out of work; None if unknown.
    """
    listed = list(runs)
    found = ((virtual, [one for rehearsal, one in listed if rehearsal is virtual]) for virtual in (False, True))
    return tuple(_total(virtual, group) for virtual, group in found if group)


def _total(virtual: bool, group: Sequence[OutOfWork | None]) -> OutageTotal:
    known = [one for one in group if one and one.gpu_hours is not None]
    compared = [one for one in known if one.terms]
    currencies = dict.fromkeys(one.terms.currency for one in compared if one.terms and one.price)
    return OutageTotal(
        virtual=virtual,
        known=len(known),
        unknown=len(group) - len(known),
        gpu_hours=_hours(known) if known else None,
        compared=len(compared),
        compared_gpu_hours=_hours(compared),
        unnoticed_gpu_hours=sum(one.unnoticed_gpu_hours or 0.0 for one in compared),
        hours_until_noticed=tuple(sorted({one.terms.hours_until_noticed for one in compared if one.terms})),
        money=tuple(_money(currency, compared) for currency in currencies),
    )


def _hours(known: Sequence[OutOfWork]) -> float:
    return sum(one.gpu_hours or 0.0 for one in known)


def _money(currency: str, compared: Sequence[OutOfWork]) -> Money:
    priced = [(one.price, one) for one in compared if one.price and one.terms and one.terms.currency == currency]
    return Money(
        currency=currency,
        runs=len(priced),
        cost=sum(price * (one.gpu_hours or 0.0) for price, one in priced),
        unnoticed=sum(price * (one.unnoticed_gpu_hours or 0.0) for price, one in priced),
    )
