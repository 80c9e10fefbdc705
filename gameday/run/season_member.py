"""The place of a run in a season: the lease that covers it, its nodes, and the effects of its sibling runs."""

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
    """The season's id: the holder of its lease, and the prefix of the run's own id."""
    targets: tuple[str, ...]
    """The nodes the season chose for this run."""
    seed: int
    """The seed with which it chose them."""
    sibling_nodes: frozenset[str] = frozenset()
    """Nodes that sibling runs may break at the same time."""
    sibling_alerts: frozenset[str] = frozenset()
    """Alerts that sibling runs expect: one without a node may be a sibling's."""

    approval: Approval | None = None
    """The season's approval; None if the run has to ask for its own, in case its plan needs one."""

    def is_siblings_alert(self, alert: str, node: str | None) -> bool:
        """Return True if a sibling run may have caused the alert, so that this run must not be blamed for it."""
        return node in self.sibling_nodes if node else alert in self.sibling_alerts
