"""Injecting and undoing: undo is repeated, goes on after a failure, and is read back."""

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
from gameday.plan.fault import FaultParameters
from tests.agent.conftest import inject_task
from tests.host.fake import FakeHost


class KnobParameters(FaultParameters):
    type: Literal["knob"] = "knob"


class KnobFault(Fault[KnobParameters]):
    """A fault that sets /sys/knob. Its undo raises `error` the first `failures` times."""

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


def task(**changes: Any) -> InjectTask:
    return InjectTask.model_validate(inject_task(fault={"type": "knob"}, hold_s=0.01) | changes)


def test_undo_is_repeated_until_it_succeeds(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.failures = 2
    result = inject(task(), context)
    assert (result.ok, result.cleanliness, result.attempts) == (True, "clean", 3)
    assert result.evidence.count("undo, attempt 1: device is busy") == 1
    assert host.files["/sys/knob"] == "0"


def test_a_fault_that_stays_in_is_dirty(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.failures = 99
    result = inject(task(), context)
    assert (result.ok, result.cleanliness, result.attempts) == (False, "dirty", 3)
    assert "still in" in result.error
    assert result.undo_state == {"before": "0"}


def test_undo_is_repeated_after_a_bug_in_the_fault(fault: KnobFault, context: Context) -> None:
    fault.failures, fault.error = 1, ZeroDivisionError("division by zero")
    result = inject(task(), context)
    assert result.cleanliness == "clean"
    assert "undo, attempt 1: ZeroDivisionError: division by zero" in result.evidence


def test_a_fault_that_cannot_be_read_back_is_unknown(fault: KnobFault, host: FakeHost, context: Context) -> None:
    ended = context.ending.event

    class Vanishing(KnobFault):
        def hold(self, parameters: Any, gpu: int, host: Any, ended: threading.Event) -> None:
            ended.wait()
            host.refuse["read_file"] = "node is off"

    fault.__class__ = Vanishing
    result = inject(task(), context)
    assert ended.is_set()
    assert (result.ok, result.cleanliness) == (False, "unknown")
    assert "node is off" in result.error


def test_an_injection_that_fails_half_way_is_undone(fault: KnobFault, host: FakeHost, context: Context) -> None:
    fault.fail_after_write = True
    result = inject(task(), context)
    assert (result.ok, result.cleanliness) == (False, "clean")
    assert "lost the host half way" in result.error
    assert result.went_in is None
    assert host.files["/sys/knob"] == "0"


def test_prior_values_are_printed_before_anything_is_changed(
    fault: KnobFault, context: Context, capsys: pytest.CaptureFixture[str]
) -> None:
    """The log outlives an agent that is killed; therefore the note comes before the fault does."""
    inject(task(), context)
    notes = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [note["note"] for note in notes] == ["prior", "injected"]
    assert notes[0]["undo_state"] == {"before": "0"}


def test_prior_values_are_in_the_state_file_before_anything_is_changed(
    fault: KnobFault, host: FakeHost, context: Context
) -> None:
    """A killed agent leaves the state file as it is in the middle of the injection."""
    host.files["/sys/knob"] = "7"
    write, kept = host.write_file, []

    def written(path: str, content: str) -> None:
        kept.append(json.loads((context.state_dir / "injected.json").read_text())["undo_state"])
        write(path, content)

    host.write_file = written  # type: ignore[method-assign]
    fault.fail_after_write = True
    assert inject(task(), context).cleanliness == "clean"
    assert kept[0] == {"before": "7"}
    assert host.files["/sys/knob"] == "7"


def test_a_fault_that_is_refused_before_it_goes_in_is_not_undone(
    fault: KnobFault, host: FakeHost, context: Context
) -> None:
    fault.refuse_first = True
    fault.failures = 99
    result = inject(task(), context)
    assert (result.ok, result.cleanliness, result.ended_by, result.error) == (
        False,
        "clean",
        "error",
        "no such knob",
    )
    assert result.went_in is False
    assert host.files["/sys/knob"] == "0"


def test_findings_during_the_hold_are_evidence(fault: KnobFault, context: Context) -> None:
    fault.held = ("peak 60 C",)
    result = inject(task(), context)
    assert (result.went_in, result.evidence[:3]) == (True, ("set", "peak 60 C", "put back"))


def test_a_note_that_cannot_be_printed_takes_the_fault_out(fault: KnobFault, host: FakeHost, context: Context) -> None:
    object.__setattr__(context, "print_note", lambda note: (_ for _ in ()).throw(BrokenPipeError(32, "Broken pipe")))
    result = inject(task(hold_s=3600), context)
    assert (result.ok, result.cleanliness, result.ended_by) == (False, "clean", "error")
    assert host.files["/sys/knob"] == "0"


def test_an_agent_that_is_stopped_before_the_injection_changes_nothing(
    fault: KnobFault, host: FakeHost, context: Context
) -> None:
    context.ending.by_signal()
    result = inject(task(), context)
    assert (result.ok, result.cleanliness, result.ended_by) == (False, "clean", "sigterm")
    assert result.went_in is False
    assert host.files["/sys/knob"] == "0"
    assert list(context.state_dir.iterdir()) == []


@pytest.mark.parametrize("stopped", [False, True])
def test_a_restarted_agent_undoes_by_its_state_file(
    fault: KnobFault, host: FakeHost, context: Context, stopped: bool
) -> None:
    if stopped:
        context.ending.by_signal()
    host.files["/sys/knob"] = "broken"
    (context.state_dir / "injected.json").write_text('{"undo_state": {"before": "7"}}')
    result = inject(task(), context)
    assert (result.ok, result.cleanliness) == (False, "clean")
    assert host.files["/sys/knob"] == "7"


@pytest.mark.parametrize("kept", ["", "{", '{"undo_state": 3}'])
def test_a_restarted_agent_undoes_although_its_state_file_is_broken(
    fault: KnobFault, host: FakeHost, context: Context, kept: str
) -> None:
    host.files["/sys/knob"] = "broken"
    (context.state_dir / "injected.json").write_text(kept)
    assert inject(task(), context).cleanliness == "clean"
    assert host.files["/sys/knob"] == "0"


def test_the_role_undo_works_by_the_undo_state_alone(fault: KnobFault, host: FakeHost, context: Context) -> None:
    host.files["/sys/knob"] = "broken"
    undo_task = UndoTask(run_id="r", node="n", gpu=0, fault={"type": "knob"}, undo_state={"before": "5"})
    assert undo(undo_task, context).ok
    assert host.files["/sys/knob"] == "5"


def test_the_first_reason_to_end_counts() -> None:
    ending = Ending()
    ending.by_signal()
    ending.by_signal()
    ending.after(0.0).join()
    assert ending.reason == "sigterm"
