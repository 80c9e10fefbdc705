"""Undo is tried again, goes on after a failure, and says what reading back showed."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from gameday.agent.context import Context, Ending
from gameday.agent.inject import inject, undo
from gameday.agent.task import InjectTask, UndoTask
from gameday.errors import HostError
from gameday.faults.base import Evidence, Fault, Layer
from gameday.host.base import Host
from gameday.plan.models import FaultParameters
from tests.agent.conftest import inject_task
from tests.host.fake import FakeHost


class KnobParameters(FaultParameters):
    type: Literal["knob"] = "knob"


class KnobFault(Fault[KnobParameters]):
    """Sets /sys/knob; its undo fails as often as `failures` says, and raises what `error` says."""

    parameters: ClassVar[type[FaultParameters]] = KnobParameters
    layer: ClassVar[Layer] = Layer.NODE
    summary: ClassVar[str] = "sets a knob"
    does_not_reach: ClassVar[str] = "anything else"
    seen_by: ClassVar[tuple[str, ...]] = ("nobody",)
    failures = 0
    error: Exception = HostError("device is busy")
    fail_after_write = False
    refuse_first = False
    held: tuple[str, ...] | None = None

    def prior_state(self, parameters: KnobParameters, gpu: int, host: Host) -> dict[str, str]:
        if self.refuse_first:
            raise HostError("no such knob")
        return {"before": host.read_file("/sys/knob")}

    def hold(self, parameters: KnobParameters, gpu: int, host: Host, ended: threading.Event) -> tuple[str, ...] | None:
        ended.wait()
        return self.held

    def inject(self, parameters: KnobParameters, gpu: int, host: Host) -> Evidence:
        before = host.read_file("/sys/knob")
        host.write_file("/sys/knob", "broken")
        if self.fail_after_write:
            raise HostError("lost the host half way")
        return Evidence(lines=("set",), undo_state={"before": before})

    def undo(self, parameters: KnobParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if self.failures:
            self.failures -= 1
            raise self.error
        host.write_file("/sys/knob", undo_state.get("before", "0"))
        return Evidence(lines=("put back",))

    def verify_undone(self, parameters: KnobParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return host.read_file("/sys/knob") == undo_state.get("before", "0")


@pytest.fixture
def host() -> FakeHost:
    host = FakeHost()
    host.files["/sys/knob"] = "0"
    return host


@pytest.fixture
def fault(monkeypatch: pytest.MonkeyPatch) -> KnobFault:
    fault = KnobFault()
    monkeypatch.setattr("gameday.faults.registry.known_faults", lambda: {"knob": fault})
    monkeypatch.setattr("gameday.agent.inject._PAUSES_S", (0.0, 0.0))
    return fault


@pytest.fixture
def context(host: FakeHost, tmp_path: Path) -> Context:
    return Context(host, Ending(), tmp_path, tmp_path / "log")


def order(**changes: Any) -> InjectTask:
    return InjectTask.model_validate(inject_task(fault={"type": "knob"}, hold_s=0.01) | changes)


def test_undo_is_tried_again_until_it_holds(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.failures = 2
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness, outcome.attempts) == (True, "clean", 3)
    assert outcome.evidence.count("undo, attempt 1: device is busy") == 1
    assert host.files["/sys/knob"] == "0"


def test_a_fault_that_stays_is_dirty_and_says_so(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.failures = 99
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness, outcome.attempts) == (False, "dirty", 3)
    assert "still in" in outcome.error
    assert outcome.undo_state == {"before": "0"}


def test_a_bug_in_a_faults_undo_does_not_keep_it_in(fault: KnobFault, context: Context) -> None:
    fault.failures, fault.error = 1, ZeroDivisionError("division by zero")
    outcome = inject(order(), context)
    assert outcome.cleanliness == "clean"
    assert "undo, attempt 1: ZeroDivisionError: division by zero" in outcome.evidence


def test_what_cannot_be_read_back_is_unknown(fault: KnobFault, host: FakeHost, context: Context) -> None:
    ended = context.ending.event

    class Vanishing(KnobFault):
        def hold(self, parameters: Any, gpu: int, host: Any, ended: threading.Event) -> None:
            ended.wait()
            host.refuse["read_file"] = "node is off"

    fault.__class__ = Vanishing
    outcome = inject(order(), context)
    assert ended.is_set()
    assert (outcome.ok, outcome.cleanliness) == (False, "unknown")
    assert "node is off" in outcome.error


def test_an_inject_that_fails_half_way_is_undone(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.fail_after_write = True
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness) == (False, "clean")
    assert "lost the host half way" in outcome.error
    assert host.files["/sys/knob"] == "0"


def test_what_was_there_before_is_printed_before_anything_is_changed(
    fault: KnobFault, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log is what outlives an agent that is killed; so the note comes before the fault does."""
    inject(order(), context)
    notes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [note["note"] for note in notes] == ["prior", "injected"]
    assert notes[0]["undo_state"] == {"before": "0"}


def test_what_was_there_before_is_kept_before_anything_is_changed(
    fault: KnobFault, host: FakeHost, context: Context
) -> None:
    """The state file as a killed agent would leave it, in the middle of the injection."""
    host.files["/sys/knob"] = "7"
    write, kept = host.write_file, []

    def written(path: str, content: str) -> None:
        kept.append(json.loads((context.state_dir / "injected.json").read_text())["undo_state"])
        write(path, content)

    host.write_file = written  # type: ignore[method-assign]
    fault.fail_after_write = True
    assert inject(order(), context).cleanliness == "clean"
    assert kept[0] == {"before": "7"}
    assert host.files["/sys/knob"] == "7"


def test_what_is_refused_before_it_goes_in_is_not_undone(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.refuse_first = True
    fault.failures = 99
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness, outcome.ended_by, outcome.error) == (
        False,
        "clean",
        "error",
        "no such knob",
    )
    assert host.files["/sys/knob"] == "0"


def test_what_the_hold_found_is_evidence(fault: KnobFault, context: Context) -> None:
    fault.held = ("peak 60 C",)
    assert inject(order(), context).evidence[:3] == ("set", "peak 60 C", "put back")


def test_a_note_nobody_can_read_takes_the_fault_out(fault: KnobFault, host: FakeHost, context: Context) -> None:
    object.__setattr__(context, "say", lambda note: (_ for _ in ()).throw(BrokenPipeError(32, "Broken pipe")))
    outcome = inject(order(hold_s=3600), context)
    assert (outcome.ok, outcome.cleanliness, outcome.ended_by) == (False, "clean", "error")
    assert host.files["/sys/knob"] == "0"


def test_stopped_before_it_began_nothing_is_touched(fault: KnobFault, host: FakeHost, context: Context) -> None:
    context.ending.by_signal()
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness, outcome.ended_by) == (False, "clean", "sigterm")
    assert host.files["/sys/knob"] == "0"
    assert list(context.state_dir.iterdir()) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_a_restart_undoes_from_the_kept_state(
    fault: KnobFault, host: FakeHost, context: Context, stopped: bool
) -> None:
    if stopped:
        context.ending.by_signal()
    host.files["/sys/knob"] = "broken"
    (context.state_dir / "injected.json").write_text('{"undo_state": {"before": "7"}}')
    outcome = inject(order(), context)
    assert (outcome.ok, outcome.cleanliness) == (False, "clean")
    assert host.files["/sys/knob"] == "7"


@pytest.mark.parametrize("kept", ["", "{", '{"undo_state": 3}'])
def test_a_restart_with_a_torn_state_still_undoes(
    fault: KnobFault, host: FakeHost, context: Context, kept: str
) -> None:
    host.files["/sys/knob"] = "broken"
    (context.state_dir / "injected.json").write_text(kept)
    assert inject(order(), context).cleanliness == "clean"
    assert host.files["/sys/knob"] == "0"


def test_the_reapers_undo_works_from_undo_state_alone(fault: KnobFault, host: FakeHost, context: Context) -> None:
    host.files["/sys/knob"] = "broken"
    task = UndoTask(run_id="r", node="n", gpu=0, fault={"type": "knob"}, undo_state={"before": "5"})
    assert undo(task, context).ok
    assert host.files["/sys/knob"] == "5"


def test_the_first_reason_to_end_counts() -> None:
    ending = Ending()
    ending.by_signal()
    ending.by_signal()
    ending.after(0.0).join()
    assert ending.reason == "sigterm"
