"""The place of a run in a season: the lease that covers it, its nodes, and what its sibling runs may set off."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict


class Approval(BaseModel):
    """A person's approval of a whole season."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    by: str
    at: AwareDatetime
    via: Literal["Prefect", "command line"]
    comment: str = ""


class SeasonMember(BaseModel):
    """The place of a run in a season, as plain data: a Prefect flow run takes it as a parameter."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    season: str
    """The season's id: the holder that its lease names, and the beginning of the run's own id."""
    targets: tuple[str, ...]
    """The nodes the season chose for this run."""
    seed: int
    """The seed that it chose them by."""
    sibling_nodes: frozenset[str] = frozenset()
    """Nodes that sibling runs may break meanwhile."""
    sibling_alerts: frozenset[str] = frozenset()
    """Alerts that sibling runs expect: one that names no node may be a sibling's."""

    approval: Approval | None = None
    """The season's approval; None if the run has to ask for one itself, should its plan need it."""

    def is_siblings_alert(self, alert: str, node: str | None) -> bool:
        """Return True if a sibling run may have set the alert off, so that this run must not be blamed for it."""
        return node in self.sibling_nodes if node else alert in self.sibling_alerts
