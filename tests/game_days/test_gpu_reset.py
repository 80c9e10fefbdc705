"""Somebody has the GPU open that the plan is going to reset: reported while the node is still healthy."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gameday.history.events import FaultInjected
from gameday.host.base import HoldMemory
from tests.game_days.conftest import QUICK, Arena, patient
from tests.game_days.test_doctor import doctor

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]
PROCESS = "python -m gameday.host.worker --gpu="


@pytest.fixture
def monitored(clean_arena: Arena) -> Iterator[Arena]:
    """Every GPU is open in a process of no pod that a drain would take."""
    gpus = [(host, gpu.index) for host in clean_arena.hosts().values() for gpu in host.gpus()]
    for host, gpu in gpus:
        host.start_work(gpu, HoldMemory(leave_bytes=1 << 30))
    yield clean_arena
    for host, gpu in gpus:
        host.end_work(gpu)


@pytest.mark.gate
def test_a_run_is_refused_and_names_the_process(monitored: Arena) -> None:
    played = monitored.play(patient(QUICK))
    assert played.exit_code == 5, played.output
    assert PROCESS in " ".join(played.output.split())
    assert not list(played.history.of(FaultInjected))


def test_the_doctor_names_it_too(monitored: Arena) -> None:
    _, rows = doctor(monitored, "--send-pod")
    (row,) = [row for name, row in rows.items() if name.endswith("can be reset")]
    assert (row["ok"], PROCESS in row["detail"]) == (False, True)
