"""A run's place in a season: whose lease covers it, which nodes it was given, and what its siblings may set off."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Approval(BaseModel):
    """Who said yes for a whole season, when and where."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    at: AwareDatetime
    via: Literal["Prefect", "command line"]
    comment: str = ""


class SeasonMember(BaseModel):
    """Crosses to another machine when a season fans out, so it is plain data."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    season: str
    """The season's id, which its lease names as holder, and which the run's own id begins with."""
    targets: tuple[str, ...]
    """The nodes the season chose for this run."""
    seed: int
    """By which it chose them."""
    others: frozenset[str] = frozenset()
    """Nodes that sibling runs may break meanwhile."""
    their_alerts: frozenset[str] = frozenset()
    """Alerts that siblings expect: where such a one names no node, it may be theirs."""

    approval: Approval | None = None
    """Given once for the season; None where the run has to ask for itself, if its plan needs a yes."""

    def theirs(self, alert: str, node: str | None) -> bool:
        """Whether an alert may be a sibling's doing, so that this run must not be blamed for it."""
        return node in self.others if node else alert in self.their_alerts
