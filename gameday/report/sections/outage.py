"""The cost of the game-day: GPU-hours out of work, and money if the cluster's profile has a price."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.report.out_of_work import node_outages, out_of_work
from gameday.report.outage import RULE, OutOfWork
from gameday.report.run_folder import RunFolder

ORDER = 109
TITLE = "What it cost: GPU-hours out of work"
GROUP = "The run and its files"


class NodeCost(BaseModel):
    """A target; `gpu_hours` None if unknown, with the reason in `why`."""

    node: str
    gpus: int | None
    since: datetime | None = Field(description="None: it stayed schedulable")
    until: datetime | None
    gpu_hours: float | None
    why: str


class Outage(BaseModel):
    rule: str
    virtual: bool
    total: OutOfWork
    money: float | None = Field(description="None without a price, or if the time is unknown")
    nodes: tuple[NodeCost, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.nodes or self.total.why else "no GPU was out of work"


def build(run: RunFolder) -> Outage:
    total = out_of_work(run)
    return Outage(
        rule=RULE,
        virtual=run.is_virtual,
        total=total,
        money=total.gpu_hours * total.price if total.gpu_hours is not None and total.price else None,
        nodes=tuple(NodeCost(**one._asdict(), gpu_hours=one.gpu_hours) for one in node_outages(run)),
    )
