"""The words for results: steps and their outcomes, hops of the detection chain, cleanliness."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Trigger = Literal["rehearsal", "manual", "scheduled"]
"""The occasion of a run."""


class Step(StrEnum):
    """The six steps of a game-day, in the only order they ever run in."""

    BASELINE = "baseline"
    INJECT = "inject"
    AWAIT_ALERT = "await alert"
    VERIFY_TAINT = "verify taint"
    RECOVER = "recover"
    QA_NODE = "qa node"


class StepOutcome(StrEnum):
    """The end of a step.

    NOT_REACHED is a step that the run's early end kept from starting, NOT_ASKED one that its flow leaves out.
    """

    DONE = "done"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    ABORTED = "aborted"
    NOT_REACHED = "not reached"
    NOT_ASKED = "not asked"


class Cleanliness(StrEnum):
    """The result of reading back after an undo."""

    CLEAN = "clean"
    DIRTY = "dirty"
    UNKNOWN = "unknown"


class Hop(StrEnum):
    """A link of the detection chain; the links are in causal order."""

    WRITTEN = "fault written"
    IN_LOG_STORE = "in log store"
    DECIDED = "detector decided"
    TAINTED = "node tainted"
    SAMPLED = "sampled by Prometheus"
    RULE_PENDING = "rule pending"
    RULE_FIRING = "rule firing"
    NOTIFIED = "active in Alertmanager"
