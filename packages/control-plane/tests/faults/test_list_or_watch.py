"""A client that follows Secrets of the embedded API server: in, measured, out, also by another process."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from gameday.errors import HostError
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.list_or_watch import ListOrWatchFault, ListOrWatchParameters
from tests.control_plane.faults.conftest import LOAD
from tests.host.fake import FakeHost
from tests.kubesim.processes import ApiServer as Program

SMALL: dict[str, Any] = {
    "objects": 7,
    "object_size": "1KB",
    "interval": "200ms",
    "changes_per_second": 20,
    "follows_for": "1s",
    "hold": "60s",
}
SECRETS = f"{LOAD}/secrets"


def left(server: Program) -> int:
    with server.http() as http:
        return len(http.get(SECRETS).raise_for_status().json()["items"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    ["poll", "pages", "informer", "metadata"],
)
def test_every_change_is_seen_and_measured(host: FakeHost, server: Program, mode: str) -> None:
    fault, parameters = ListOrWatchFault(), ListOrWatchParameters(**SMALL | {"mode": mode})
    told: list[BaseModel] = []
    fault.prior_state(parameters, 0, host)
    try:
        fault.inject(parameters, 0, host)
        assert left(server) == 7
        fault.hold_and_tell(parameters, 0, host, threading.Event(), told.append)
    finally:
        fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})
    (note,) = told
    assert isinstance(note, MeasuredNote)
    measured = note.measured
    assert measured.writes > 0
    assert (measured.failed_writes, measured.unseen) == (0, 0)
    assert len(measured.lags) == measured.writes
    assert measured.to_sync.bytes > 7 * (100 if mode == "metadata" else 1000)
    assert measured.to_follow.bytes > 0
    assert measured.to_follow.failed == 0, "its own end is no failure"
    assert measured.to_follow.watches <= 1
    assert measured.to_follow.cpu_seconds > 0
    assert measured.began_at < measured.synced_at < measured.ended_at
    assert (measured.to_follow.lists == 0) == (mode in {"informer", "metadata"})
    assert measured.to_follow.gets == (measured.writes if mode == "metadata" else 0)


@pytest.mark.slow
def test_another_process_undoes_by_the_label_alone(host: FakeHost, server: Program) -> None:
    killed, parameters = ListOrWatchFault(), ListOrWatchParameters(**SMALL)
    killed.inject(parameters, 0, host)
    try:
        with pytest.raises(HostError, match="gameday reap"):
            ListOrWatchFault().prior_state(parameters, 0, host)
        another = ListOrWatchFault()
        assert not another.verify_undone(parameters, 0, host, {})
        for _ in range(2):
            another.undo(parameters, 0, host, {})
            assert another.verify_undone(parameters, 0, host, {})
    finally:
        killed.undo(parameters, 0, host, {})
    assert left(server) == 0


@pytest.mark.slow
def test_an_early_end_still_tells_what_was_measured(host: FakeHost) -> None:
    fault, parameters = ListOrWatchFault(), ListOrWatchParameters(**SMALL | {"follows_for": "20s"})
    ended, told = threading.Event(), list[BaseModel]()
    ended.set()
    fault.inject(parameters, 0, host)
    try:
        fault.hold_and_tell(parameters, 0, host, ended, told.append)
    finally:
        fault.undo(parameters, 0, host, {})
    assert isinstance(told[0], MeasuredNote)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objects": 20_000, "object_size": "100KB", "hold": "30m"}, r"20000 objects of 100KB are 2\.00 GB"),
        ({"hold": "5s"}, "hold it for longer, or follow for a shorter time"),
        ({"changes_per_second": 0.5}, "0 objects would change"),
        ({"changes_per_second": 100, "follows_for": "10m", "hold": "15m"}, "60000 objects would change"),
    ],
)
def test_what_cannot_be_measured_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ListOrWatchParameters(**SMALL | changes)
