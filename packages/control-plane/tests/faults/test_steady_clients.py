"""Steady clients against the embedded API server: connected, counted, taken out."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.steady_clients import SteadyClientsFault, SteadyClientsParameters
from gameday_control_plane.values.api_loads import SteadyLoad
from tests.host.fake import FakeHost

SMALL: dict[str, Any] = {"clients": 3, "rate": 10, "protocol": "http1", "runs_for": "2s", "hold": "2m"}


@pytest.mark.slow
@pytest.mark.parametrize("watch_only", [False, True])
def test_every_client_asks_over_one_connection(host: FakeHost, watch_only: bool) -> None:
    fault, parameters = SteadyClientsFault(), SteadyClientsParameters(**SMALL | {"watch_only": watch_only})
    told: list[BaseModel] = []
    fault.prior_state(parameters, 0, host)
    try:
        fault.inject(parameters, 0, host)
        assert not fault.verify_undone(parameters, 0, host, {})
        fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    finally:
        fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})
    (note,) = told
    assert isinstance(note, MeasuredNote) and isinstance(note.measured, SteadyLoad)
    measured = note.measured
    assert measured.failed == 0
    assert sum(second.cut + second.reconnects for second in measured.seconds) == 0
    assert measured.requests == 3 if watch_only else measured.requests > 3
    assert measured.cpu_seconds > 0


def test_a_load_that_its_hold_would_cut_off_is_refused() -> None:
    with pytest.raises(ValidationError, match="hold it for longer"):
        SteadyClientsParameters(**SMALL | {"runs_for": "90s"})
