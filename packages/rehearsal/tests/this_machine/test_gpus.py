"""The thread that reads the GPUs: what it holds open, and what it says of a GPU that is silent."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gameday.errors import HostError
from gameday_rehearsal.this_machine import gpus
from gameday_rehearsal.this_machine.gpus import GpuReader

Readers = Callable[..., GpuReader]


class Driver:
    """A driver with one GPU, of which one figure is read; it counts how often NVML is opened and read."""

    def __init__(self) -> None:
        self.is_open = self.is_away = False
        self.opened = 0
        self.figures: dict[str, float] = {"DCGM_FI_DEV_GPU_TEMP": 41}
        self.read = threading.Semaphore(0)

    @contextmanager
    def open(self) -> Iterator[Any]:
        if self.is_away:
            raise HostError("NVML: Driver Not Loaded")
        self.opened += 1
        self.is_open = True
        yield self
        self.is_open = False

    def nvmlDeviceGetCount(self) -> int:
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return f"handle {index}"

    def await_readings(self, number: int) -> None:
        for _ in range(number):
            assert self.read.acquire(timeout=30)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    made = Driver()

    def read(*_: object) -> dict[str, float]:
        made.read.release()
        return dict(made.figures)

    monkeypatch.setattr(gpus, "open_nvml", made.open)
    monkeypatch.setattr(gpus, "read_figures", read)
    monkeypatch.setattr(gpus, "XidEvents", lambda _: None)
    monkeypatch.setattr(gpus, "READ_EVERY_S", 0.01)
    return made


@pytest.fixture
def reader() -> Iterator[Readers]:
    """Return a function that starts a reader, which is stopped after the test."""
    started: list[GpuReader] = []

    def start(**given: Any) -> GpuReader:
        options: dict[str, Any] = {"lets_go": False, "pauses": lambda: False, "changed": lambda: None}
        started.append(GpuReader(**options | given))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


def test_nvml_stays_open_over_many_readings(driver: Driver, reader: Readers) -> None:
    found = reader()
    driver.await_readings(5)
    assert driver.opened == 1
    reading = found.reading()
    assert reading and reading.figures == {0: {"DCGM_FI_DEV_GPU_TEMP": 41}}


def test_a_reader_that_lets_go_opens_nvml_for_each_reading_and_pauses(driver: Driver, reader: Readers) -> None:
    asked = threading.Semaphore(0)
    pausing = threading.Event()

    def pauses() -> bool:
        asked.release()
        return pausing.is_set()

    reader(lets_go=True, pauses=pauses)
    driver.await_readings(3)
    assert driver.opened >= 3
    pausing.set()
    while asked.acquire(blocking=False):
        pass
    for _ in range(3):  # the first may have been asked before the pause
        assert asked.acquire(timeout=30)
    opened = driver.opened
    assert asked.acquire(timeout=30)
    assert (driver.opened, driver.is_open) == (opened, False)


def test_a_gpu_without_figures_does_not_answer_until_it_has_some(driver: Driver, reader: Readers) -> None:
    changed = threading.Semaphore(0)
    found = reader(changed=changed.release)
    assert found.answers(0), "nobody has asked it yet"
    driver.await_readings(2)
    for figures, answers in (({}, False), ({"DCGM_FI_DEV_GPU_TEMP": 42.0}, True)):
        driver.figures = figures
        assert changed.acquire(timeout=30)
        assert found.answers(0) is answers


def test_a_driver_that_is_away_has_no_gpu_and_old_figures_are_not_shown(
    driver: Driver, reader: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = threading.Semaphore(0)
    found = reader(lets_go=True, changed=changed.release)
    driver.await_readings(2)
    driver.is_away = True
    assert changed.acquire(timeout=30)
    assert not found.answers(0)
    monkeypatch.setattr(gpus, "SHOWN_FOR_S", -1.0)
    assert found.reading() is None
