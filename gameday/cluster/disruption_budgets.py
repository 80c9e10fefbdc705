"""PodDisruptionBudgets: which pods each covers, and how many of them may be evicted now."""

from __future__ import annotations

from collections.abc import Mapping

from kubernetes import client
from pydantic import BaseModel, ConfigDict


class DisruptionBudget(BaseModel):
    """A PodDisruptionBudget."""

    model_config = ConfigDict(frozen=True)

    name: str
    match_labels: dict[str, str]
    expressions: tuple[tuple[str, str, tuple[str, ...]], ...]
    """key, operator (In, NotIn, Exists, DoesNotExist), values."""
    selects_nothing: bool
    """True for a budget without a selector; an empty selector selects all pods of its namespace."""
    allowed: int
    """Pods that may be evicted now."""

    def covers(self, labels: Mapping[str, str]) -> bool:
        """Return True if it covers a pod of its namespace with these labels."""
        if self.selects_nothing or any(labels.get(key) != value for key, value in self.match_labels.items()):
            return False
        return all(_holds(labels.get(key), operator, values) for key, operator, values in self.expressions)


def disruption_budget(budget: client.V1PodDisruptionBudget) -> DisruptionBudget:
    """Return the client's budget as ours."""
    selector = budget.spec.selector
    expressions = (selector.match_expressions if selector else None) or []
    return DisruptionBudget(
        name=budget.metadata.name,
        match_labels=(selector.match_labels if selector else None) or {},
        expressions=tuple((found.key, found.operator, tuple(found.values or ())) for found in expressions),
        selects_nothing=selector is None,
        allowed=(budget.status.disruptions_allowed if budget.status else None) or 0,
    )


def _holds(value: str | None, operator: str, values: tuple[str, ...]) -> bool:
    """Evaluate one of matchExpressions like the API server; `value` is None if the label is missing."""
    match operator:
        case "In":
            return value in values
        case "NotIn":
            return value not in values
        case "Exists":
            return value is not None
        case _:
            return value is None
