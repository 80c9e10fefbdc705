"""The words for results: steps and their outcomes, hops of both chains, kinds of repair, cleanliness."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

Trigger = Literal["rehearsal", "manual", "scheduled"]
"""The occasion of a run."""


class Step(StrEnum):
    """The six steps of a game-day, in the only order in which they run."""

    BASELINE = "baseline"
    INJECT = "inject"
    AWAIT_ALERT = "await alert"
    VERIFY_TAINT = "verify taint"
    RECOVER = "recover"
    QA_NODE = "qa node"


class StepOutcome(StrEnum):
    """The end of a step.

    NOT_REACHED is a step that did not start because the run ended early; NOT_ASKED is one that the flow leaves out.
    """

    DONE = "done"
    BROKEN = "broken"
    UNKNOWN = "unknown"
    ABORTED = "aborted"
    NOT_REACHED = "not reached"
    NOT_ASKED = "not asked"


class Cleanliness(StrEnum):
    """The state that was read back after an undo."""

    CLEAN = "clean"
    DIRTY = "dirty"
    UNKNOWN = "unknown"


class Hop(StrEnum):
    """A link of the detection chain; the links are in causal order."""

    WRITTEN = "fault written"
    LOGGED = "in the kernel log"
    NVML_EVENT = "event of NVML"
    IN_LOG_STORE = "in log store"
    DECIDED = "detector decided"
    TAINTED = "node tainted"
    SAMPLED = "sampled by Prometheus"
    RULE_PENDING = "rule pending"
    RULE_FIRING = "rule firing"
    NOTIFIED = "active in Alertmanager"


class RepairHop(StrEnum):
    """A link of the repair chain of a cluster that repairs nodes itself; the links are in causal order."""

    QUARANTINED = "quarantined"
    WORK_MOVED = "work moved"
    REPAIR_BEGUN = "repair begun"
    REPAIRED = "repaired"
    READY = "ready"
    VALIDATED = "validated"
    RETURNED = "returned"


class RepairKind(StrEnum):
    """A way in which a cluster repairs a node."""

    WORKLOAD_RESTART = "workload-restart"
    GPU_RESET = "gpu-reset"
    DRIVER_RESTART = "driver-restart"
    REBOOT = "reboot"
    REPLACEMENT = "replacement"
