"""GPU game-days: break one GPU on purpose and measure whether anything notices.

The names in `__all__` are the public API, for flows and packages of your own (docs/extending.md). Each is loaded on
first use, because a fault in an agent's pod must not wait for Prefect, and a package that is loaded in the middle of
our own imports must not need all of them.
"""

from importlib import import_module

# Type checkers treat this name as True, like typing.TYPE_CHECKING; importing typing takes longer than all the rest.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from gameday.checks.outcome import RunOutcome, RunResult
    from gameday.checks.verdict import Status, Verdict
    from gameday.cluster.profile import ClusterProfile, load_profile
    from gameday.detectors.resolve import load_complete_plan
    from gameday.documents.fields import Bound
    from gameday.errors import (
        AbortedError,
        AdapterError,
        DocumentError,
        GamedayError,
        HostError,
        ProfileError,
        RefusedError,
        StepFailedError,
        StopRunError,
    )
    from gameday.expect.base import Expectation, PodSignal, Sighting, Signal, since_fault
    from gameday.faults.base import CanaryJob, Claim, Evidence, Fault, Layer, NodeNeeds, Reach
    from gameday.flows.approval import approve
    from gameday.flows.hooks import reap_flow_run
    from gameday.flows.invocation import invocation
    from gameday.guard.base import Guardrail, Measurement
    from gameday.guard.check import under_guardrails
    from gameday.guard.observation import Observation
    from gameday.history.frames import Frames
    from gameday.history.journal import History
    from gameday.host.base import GpuSample, Host, ProgramResult
    from gameday.host.privileges import PodSecurity
    from gameday.lifecycle.opening import Invocation, open_run
    from gameday.lifecycle.undo import undo_at_the_end
    from gameday.observe.injected_fault import InjectedFault
    from gameday.plan.catalogue import find_plan
    from gameday.plan.fault import FaultParameters
    from gameday.plan.load import LoadedPlan
    from gameday.plan.models import Plan
    from gameday.remediations.base import Remediation
    from gameday.report.figure import Figure
    from gameday.report.run_folder import RunFolder
    from gameday.run.record import RunRecord, new_run_id, start_record
    from gameday.run.repair import Repair
    from gameday.run.run import Run
    from gameday.run.targets import ChosenTarget
    from gameday.tasks.await_alert import await_alert
    from gameday.tasks.baseline import baseline
    from gameday.tasks.inject import inject
    from gameday.tasks.publish import publish_run
    from gameday.tasks.qa_node import qa_node
    from gameday.tasks.recover import recover
    from gameday.tasks.report import report as write_report
    from gameday.tasks.verify_taint import verify_taint
    from gameday.values.results import Cleanliness, Step

__version__ = "0.1.0"
__all__ = [
    "AbortedError",
    "AdapterError",
    "Bound",
    "CanaryJob",
    "ChosenTarget",
    "Claim",
    "Cleanliness",
    "ClusterProfile",
    "DocumentError",
    "Evidence",
    "Expectation",
    "Fault",
    "FaultParameters",
    "Figure",
    "Frames",
    "GamedayError",
    "GpuSample",
    "Guardrail",
    "History",
    "Host",
    "HostError",
    "InjectedFault",
    "Invocation",
    "Layer",
    "LoadedPlan",
    "Measurement",
    "NodeNeeds",
    "Observation",
    "Plan",
    "PodSecurity",
    "PodSignal",
    "ProfileError",
    "ProgramResult",
    "Reach",
    "RefusedError",
    "Remediation",
    "Repair",
    "Run",
    "RunFolder",
    "RunOutcome",
    "RunRecord",
    "RunResult",
    "Sighting",
    "Signal",
    "Status",
    "Step",
    "StepFailedError",
    "StopRunError",
    "Verdict",
    "approve",
    "await_alert",
    "baseline",
    "find_plan",
    "inject",
    "invocation",
    "load_complete_plan",
    "load_profile",
    "new_run_id",
    "open_run",
    "publish_run",
    "qa_node",
    "reap_flow_run",
    "recover",
    "since_fault",
    "start_record",
    "under_guardrails",
    "undo_at_the_end",
    "verify_taint",
    "write_report",
]

_HOLDS = {
    "checks.outcome": ("RunOutcome", "RunResult"),
    "checks.verdict": ("Status", "Verdict"),
    "cluster.profile": ("ClusterProfile", "load_profile"),
    "detectors.resolve": ("load_complete_plan",),
    "documents.fields": ("Bound",),
    "errors": tuple(name for name in __all__ if name.endswith("Error")),
    "expect.base": ("Expectation", "PodSignal", "Sighting", "Signal", "since_fault"),
    "faults.base": ("CanaryJob", "Claim", "Evidence", "Fault", "Layer", "NodeNeeds", "Reach"),
    "flows.approval": ("approve",),
    "flows.hooks": ("reap_flow_run",),
    "flows.invocation": ("invocation",),
    "guard.base": ("Guardrail", "Measurement"),
    "guard.check": ("under_guardrails",),
    "guard.observation": ("Observation",),
    "history.frames": ("Frames",),
    "history.journal": ("History",),
    "host.base": ("GpuSample", "Host", "ProgramResult"),
    "host.privileges": ("PodSecurity",),
    "lifecycle.opening": ("Invocation", "open_run"),
    "lifecycle.undo": ("undo_at_the_end",),
    "observe.injected_fault": ("InjectedFault",),
    "plan.catalogue": ("find_plan",),
    "plan.fault": ("FaultParameters",),
    "plan.load": ("LoadedPlan",),
    "plan.models": ("Plan",),
    "remediations.base": ("Remediation",),
    "report.figure": ("Figure",),
    "report.run_folder": ("RunFolder",),
    "run.record": ("RunRecord", "new_run_id", "start_record"),
    "run.repair": ("Repair",),
    "run.run": ("Run",),
    "run.targets": ("ChosenTarget",),
    "tasks.await_alert": ("await_alert",),
    "tasks.baseline": ("baseline",),
    "tasks.inject": ("inject",),
    "tasks.publish": ("publish_run",),
    "tasks.qa_node": ("qa_node",),
    "tasks.recover": ("recover",),
    "tasks.verify_taint": ("verify_taint",),
    "values.results": ("Cleanliness", "Step"),
}
_PLACES = {name: (module, name) for module, names in _HOLDS.items() for name in names}
# `gameday.report` is the room that renders, so the step needs another name here.
_PLACES["write_report"] = ("tasks.report", "report")


def __getattr__(name: str) -> object:
    """Load a name of the public API. Raises AttributeError for any other name."""
    if name not in _PLACES:
        raise AttributeError(f"module 'gameday' has no attribute {name!r}")
    module, own_name = _PLACES[name]
    found = getattr(import_module(f"gameday.{module}"), own_name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
