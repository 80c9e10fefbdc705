"""The same fault again and again: each time in and out."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults import repeated
from gameday.faults.registry import parse_parameters
from gameday.faults.repeated import RepeatedFault, RepeatedParameters
from tests.faults.gpu_model import ModelHost

CAP = {"type": "power_cap", "watts": 300, "gpu": 1}

XID = {"type": "xid", "xid": 79}


def test_a_repeated_fault_goes_in_and_out_so_many_times(monkeypatch: pytest.MonkeyPatch) -> None:
    host, ended = ModelHost(), threading.Event()
    parameters = parse_parameters({"type": "repeated", "fault": CAP, "times": 3, "every": "1s"})
    assert isinstance(parameters, RepeatedParameters)
    monkeypatch.setattr(repeated, "keep_in", lambda *_: None)
    monkeypatch.setattr(ended, "wait", lambda *_: False)
    fault = RepeatedFault()
    state = fault.inject(parameters, 0, host).undo_state
    (line,) = fault.hold_and_tell(parameters, 0, host, ended, print)
    limits = [argv[argv.index("-pl") + 1] for argv in host.ran if "-pl" in argv]
    assert limits == ["300", "700"] * 3
    assert line.startswith("went in 3 times")
    assert fault.verify_undone(parameters, 0, host, state)


def test_a_repeated_fault_that_is_ended_early_comes_out() -> None:
    host, ended = ModelHost(), threading.Event()
    parameters = parse_parameters({"type": "repeated", "fault": CAP, "times": 2, "every": "20s"})
    fault = RepeatedFault()
    state = fault.inject(parameters, 0, host).undo_state
    ended.set()
    lines = fault.hold_and_tell(parameters, 0, host, ended, print)
    assert lines == ("ended with power_cap in for the 1. of 2 times",)
    fault.undo(parameters, 0, host, state)
    assert host.gpus()[1].power_limit_w == 700


def test_a_repeated_fault_that_does_not_come_out_ends_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModelHost()
    parameters = parse_parameters({"type": "repeated", "fault": CAP, "times": 2, "every": "2s"})
    monkeypatch.setattr(repeated, "keep_in", lambda *_: None)
    fault = RepeatedFault()
    fault.inject(parameters, 0, host)
    host.ignore = {"-pl"}
    with pytest.raises(HostError, match=r"power_cap did not come out after its 1\. of 2 times"):
        fault.hold_and_tell(parameters, 0, host, threading.Event(), print)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"fault": {"type": "compound", "parts": [XID, XID]}}, "cannot be repeated"),
        ({"fault": {"type": "repeated", "fault": XID, "times": 2, "every": "2s"}}, "cannot be repeated"),
        ({"fault": {"type": "node_reboot"}}, "takes the node down"),
        ({"fault": {"type": "critical_unit_stopped", "unit": "kubelet"}}, "takes the node down"),
        ({"fault": {**XID, "hold": "5s"}}, "only outside"),
        ({"times": 1}, "greater than or equal to 2"),
        ({"every": "100ms"}, "greater than or equal to"),
        ({"hold": "10s"}, "take 25s, and hold .10s. ends before"),
    ],
)
def test_what_cannot_be_repeated_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_parameters({"type": "repeated", "fault": XID, "times": 3, "every": "10s", **change})
