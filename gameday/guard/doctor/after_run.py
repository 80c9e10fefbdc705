"""Doctor's answer at the end of a run if the cluster did not notice the fault, or the run could not judge it."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.cluster.profile import ClusterProfile
from gameday.guard.doctor.alertmanager import check_alertmanager
from gameday.guard.doctor.detectors import check_detectors
from gameday.guard.doctor.logs import check_logs
from gameday.guard.doctor.prerequisite import Prerequisite, checked_part
from gameday.guard.doctor.prometheus import check_prometheus
from gameday.history.events import DoctorAsked, DoctorFinding, NodeSeen, StepEnded
from gameday.history.journal import History
from gameday.run.node_watch import NodeWatch
from gameday.run.record import RunRecord
from gameday.run.run import ReadOnlyRun
from gameday.run.servers import Servers
from gameday.run.targets import ChosenTarget, Targets, chosen_targets
from gameday.values.results import Step, StepOutcome

# Seconds after which nothing more is asked; the answer under way has its server's own time-out. On a healthy cluster
# all checks take less than one second. Our own choice.
_MOST_S = 10.0
_OF_THE_CHAIN = (Step.AWAIT_ALERT, Step.VERIFY_TAINT)
_NOT_HELD = (StepOutcome.BROKEN, StepOutcome.UNKNOWN)


def ask_after_run(record: RunRecord, profile: ClusterProfile, servers: Servers) -> None:
    """Note doctor's answer about the links of the detection chain that a run found broken or could not judge.

    Nothing is asked if there are no such steps, and no more once the run has been asked to stop. It only reads.

    Args:
        record: The record of a run that is undone.
        profile: The cluster.
        servers: The adapters of its servers.
    """
    history = record.journal.history()
    steps = [one.step for one in history.of(StepEnded) if one.outcome in _NOT_HELD and one.step in _OF_THE_CHAIN]
    if not steps or record.abort.requested:
        return
    run = ReadOnlyRun(record, profile, servers, NodeWatch(servers.kubernetes, record.id, record.note))
    deadline, asked, why = record.clock.monotonic() + _MOST_S, [], ""
    for check in _checks(run, steps, _targets(history)):
        asked.append(check)
        if record.clock.monotonic() > deadline or record.abort.requested:
            why = "the run was stopped" if record.abort.requested else f"the servers took more than {_MOST_S:g} s"
            break
    amiss = sorted((one for one in asked if not one.ok), key=lambda one: one.ok is None)
    findings = (DoctorFinding(area=one.area, check=one.name, ok=one.ok, found=one.found, fix=one.fix) for one in amiss)
    record.note(DoctorAsked(steps=tuple(steps), checks=len(asked), findings=tuple(findings), cut_short=why))


def _checks(run: ReadOnlyRun, steps: list[Step], targets: Targets) -> Iterator[Prerequisite]:
    """Yield the checks in the order of the chain."""
    yield from checked_part("logs", check_logs(run, targets))
    yield from checked_part("detectors", check_detectors(run, targets))
    if Step.AWAIT_ALERT in steps:
        yield from checked_part("prometheus", check_prometheus(run))
        yield from checked_part("alertmanager", check_alertmanager(run))


def _targets(history: History) -> Targets:
    before = {one.snapshot.node: one.snapshot for one in history.of(NodeSeen) if one.phase == "before"}
    return tuple(
        ChosenTarget(index, target, before[target.node])
        for index, target in enumerate(chosen_targets(history))
        if target.node in before
    )
