"""A second fault in the middle of the repair: held, broken, and unknown where it never was in."""

from __future__ import annotations

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import RecoveryDisturbed, Remediated
from gameday.history.frames import Frames
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Recovery
from gameday.report.narration import narrate
from gameday.values.nodes import Target
from tests.report.run_builder import NODE, PLAN, Timed, at, cut_off, history_of, passing, replacing

DISTURBED = PLAN.model_copy(
    update={"recover": Recovery(remediation="reboot", fault_during=FaultParameters(type="freeze"))}
)


def second(*, went_in: bool = True) -> Timed:
    event = RecoveryDisturbed(
        intent="disturb",
        target=Target(node=NODE, gpu=3),
        fault="freeze",
        layer="telemetry",
        written_at=at(24.0) if went_in else None,
        evidence=("after: frozen",) if went_in else ("no pod of the exporter",),
    )
    return Timed(24.1, event)


def judge(timed: list[Timed]) -> Verdict:
    verdicts = run_checks(DISTURBED, history_of(timed), Frames())
    (found,) = [verdict for verdict in verdicts if verdict.check == "fault-during-recovery"]
    return found


def test_held_where_the_repair_succeeds_with_it_in() -> None:
    verdict = judge([*passing(), second()])
    assert verdict.status is Status.HELD
    assert verdict.measured == "succeeded in 8.7 s"


def test_broken_where_the_repair_fails_with_it_in() -> None:
    timed = replacing([*passing(), second()], lambda e: isinstance(e, Remediated), ok=False, detail="GPU is in use")
    verdict = judge(timed)
    assert verdict.status is Status.BROKEN
    assert verdict.why == "with freeze in, reboot failed: GPU is in use"


def test_unknown_where_it_did_not_go_in() -> None:
    verdict = judge([*passing(), second(went_in=False)])
    assert verdict.status is Status.UNKNOWN
    assert verdict.why == "freeze did not go in: no pod of the exporter"


def test_a_second_fault_without_a_record_is_unknown() -> None:
    assert judge(list(passing())).status is Status.UNKNOWN


def test_unknown_where_the_run_ended_before_the_repair_did() -> None:
    assert judge(cut_off([*passing(), second()], 25.0)).status is Status.UNKNOWN


def test_a_plan_without_one_is_not_judged() -> None:
    verdicts = run_checks(PLAN, history_of(passing()), Frames())
    assert not [verdict for verdict in verdicts if verdict.check == "fault-during-recovery"]


def test_the_timeline_shows_whether_the_second_fault_was_in() -> None:
    line = narrate(second().event)
    missed = narrate(second(went_in=False).event)
    assert line
    assert missed
    assert line.text == f"Fault freeze in during the recovery on {NODE}, telemetry"
    assert "did not go in" in missed.text
