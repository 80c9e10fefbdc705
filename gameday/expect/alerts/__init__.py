"""Alerts that must fire for the target, and those that the fault may set off beside them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Literal, Self

from pydantic import Field, model_validator

from gameday.documents.fields import ALERT_NAME, Bound, DocumentModel, Duration, conflict
from gameday.expect.base import Expectation, Path
from gameday.values.alert_families import MEANINGS, AlertMeaning


class ExpectedAlert(DocumentModel):
    """An alert that must fire for the target."""

    name: str = Field(default="", pattern=ALERT_NAME, max_length=200)
    """Name of the rule, its `alert:`."""
    meaning: AlertMeaning | None = None
    """The fault that the alert reports, in place of a name. The shipped rule that shows it is chosen by the fault's
    layer and by the detector that watches (docs/alerts.md, Which rule says it on your cluster)."""
    of: Literal["node", "cluster"] = "node"
    """`node`: the alert names the target. `cluster`: it names no node, like an alert that the log path is silent."""
    within: Bound
    """Longest time from the fault going in to the alert firing."""
    labels: dict[str, str] = Field(default={})
    """Labels that the alert must carry, in addition to the node's."""
    resolves_within: Duration = timedelta(minutes=5)
    """Longest time until the alert no longer fires, from the end of the remediation or, for an alert that reads the
    quarantine's taint, from the node's return to service."""

    @property
    def names(self) -> frozenset[str]:
        """Every name that the alert may have: its own, and those of all rules with its meaning."""
        rules = MEANINGS[self.meaning] if self.meaning else ()
        return frozenset({*([self.name] if self.name else []), *(rule.alert for rule in rules)})

    @model_validator(mode="after")
    def _is_named(self) -> Self:
        if not (self.name or self.meaning):
            raise conflict(("name",), f"name the alert's rule, or its meaning: {', '.join(AlertMeaning)}")
        return self

    def about(self, target: str | None) -> str | None:
        """Return the node that the alert names when it fires because of this target; None if it names none."""
        return target if self.of == "node" else None


class Alerts(Expectation):
    alerts: tuple[ExpectedAlert, ...] = ()
    """Alerts that must fire for the target."""
    allow_other_alerts: bool = False
    """If true, the fault may set off alerts that the plan does not name. The fault's are those that began after it and
    name a target or no node."""
    forbidden_severities: tuple[str, ...] = ()
    """Values of the label `severity` that no unnamed alert for the target may carry, even if other alerts are
    allowed."""

    @classmethod
    def is_asked(cls, expect: Self) -> bool:
        return bool(expect.alerts)

    @classmethod
    def bounds(cls, expect: Self) -> Iterator[tuple[Path, timedelta]]:
        yield from ((("alerts", place, "within"), one.within) for place, one in enumerate(expect.alerts))

    @model_validator(mode="after")
    def _severities_need_other_alerts(self) -> Self:
        if self.forbidden_severities and not self.allow_other_alerts:
            raise conflict(
                ("forbidden_severities",),
                "while allow_other_alerts is false, every unnamed alert breaks the run already; "
                "set allow_other_alerts: true to forbid only these severities",
            )
        return self
