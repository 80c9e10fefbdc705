"""etcd paused through a lab's control socket: bounded, measured, resumed, and refused where there is no lab."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gameday.errors import HostError
from gameday.host.base import ProgramResult
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.etcd_paused import EtcdPausedFault, EtcdPausedParameters
from gameday_control_plane.values.api_loads import Paused
from tests.host.fake import FakeHost

SHORT: dict[str, Any] = {"lasts": "2s", "begins_after": "0s", "watched_for": "0s"}


class Lab:
    """A lab's etcd, that is paused for as many looks as the test wants."""

    def __init__(self, looks: int = 2) -> None:
        self.pid: int | None = 47
        self.looks_left = 0
        self.asked: list[tuple[str, ...]] = []
        self._looks = looks

    def __call__(self, argv: Sequence[str]) -> ProgramResult:
        self.asked.append(tuple(argv[1:]))
        if argv[1] == "pause":
            self.looks_left = self._looks
        elif argv[1] == "resume":
            self.looks_left = 0
        elif self.looks_left:
            self.looks_left -= 1
        state = json.dumps({"pid": self.pid, "paused": self.looks_left > 0})
        return ProgramResult(argv=tuple(argv), exit_status=0, stdout=state, stderr="")


@pytest.fixture
def lab() -> Lab:
    return Lab()


@pytest.fixture
def host(lab: Lab) -> FakeHost:
    host = FakeHost()
    host.programs = lab
    return host


def test_it_is_paused_for_a_bounded_time_and_measured(host: FakeHost, lab: Lab) -> None:
    fault, parameters, told = EtcdPausedFault(), EtcdPausedParameters(**SHORT), list[BaseModel]()
    fault.prior_state(parameters, 0, host)
    evidence = fault.inject(parameters, 0, host)
    assert evidence.written_at
    assert all(words[0] == "look" for words in lab.asked), "it is paused only when all is written down"
    fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    assert ("pause", "etcd", "2") in lab.asked
    assert fault.verify_undone(parameters, 0, host, {})
    (note,) = told
    assert isinstance(note, MeasuredNote) and isinstance(note.measured, Paused)
    assert evidence.written_at <= note.measured.paused_at < note.measured.resumed_at <= note.measured.ended_at


def test_one_that_is_ended_early_leaves_the_rest_to_the_undo(host: FakeHost, lab: Lab) -> None:
    fault, parameters, told, ended = (
        EtcdPausedFault(),
        EtcdPausedParameters(**SHORT),
        list[BaseModel](),
        threading.Event(),
    )
    lab._looks = 100
    threading.Timer(0.1, ended.set).start()
    fault.hold_and_tell(parameters, 0, host, ended, told.append)
    assert told == []
    assert not fault.verify_undone(parameters, 0, host, {})
    fault.undo(parameters, 0, host, {})
    assert lab.asked[-1] == ("resume", "etcd")
    assert fault.verify_undone(parameters, 0, host, {})
    assert fault.undo(parameters, 0, host, {}).lines == ("etcd is not paused: nothing to resume",)


@pytest.mark.parametrize(("pid", "looks"), [(None, 0), (47, 9)])
def test_an_etcd_that_does_not_run_or_stands_still_is_refused(
    host: FakeHost, lab: Lab, pid: int | None, looks: int
) -> None:
    lab.pid, lab.looks_left = pid, looks
    with pytest.raises(HostError, match="does not run, or is paused already"):
        EtcdPausedFault().prior_state(EtcdPausedParameters(**SHORT), 0, host)


def test_a_node_of_no_lab_has_no_such_program(host: FakeHost) -> None:
    host.programs = lambda argv: ProgramResult(argv=tuple(argv), exit_status=127, stdout="", stderr="not found")
    with pytest.raises(HostError, match="the lab does not look etcd: not found"):
        EtcdPausedFault().prior_state(EtcdPausedParameters(**SHORT), 0, host)


def test_a_hold_that_would_cut_it_off_is_refused() -> None:
    with pytest.raises(ValidationError, match="hold it for as long"):
        EtcdPausedParameters(lasts=timedelta(seconds=40), hold=timedelta(seconds=60))
