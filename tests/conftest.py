"""Fixtures for every test, and the order of files: the longest first, or the others wait for them at the end."""

from __future__ import annotations

import gc

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fixtures import mock_nvml, new_run, nvml_library, reaper, runner, server, world
from tests.support.trace_receiver import trace_receiver

__all__ = ["mock_nvml", "new_run", "nvml_library", "reaper", "runner", "server", "trace_receiver", "world"]


# A busy machine is not an error: Hypothesis times each example, and how fast it makes them.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: (item.get_closest_marker("gameday") is None, "torture" not in item.path.parts))


# Objects of imports and collection live to the end; without this every full collection walks through them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
