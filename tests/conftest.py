"""Fixtures for every test, and the order of files: the longest first, or the others wait for them at the end."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import sys
import tempfile

import pytest
from hypothesis import HealthCheck, settings

from tests.support.fixtures import mock_nvml, new_run, nvml_library, reaper, runner, server, world
from tests.support.quarantine import PLAY_VARIABLE, is_listed, quarantined
from tests.support.trace_receiver import trace_receiver

__all__ = ["mock_nvml", "new_run", "nvml_library", "reaper", "runner", "server", "trace_receiver", "world"]

# Set before any test imports Prefect, and inherited by what a test starts: without a server's address Prefect refuses,
# where its default is to start a server that may outlive the test, on the user's own database.
os.environ["PREFECT_SERVER_EPHEMERAL_ENABLED"] = "false"
# A flow that loses its server, as some tests mean it to, writes why into Prefect's storage: not into the user's own.
os.environ["PREFECT_LOCAL_STORAGE_PATH"] = tempfile.mkdtemp(prefix="gameday-test-storage-")
atexit.register(shutil.rmtree, os.environ["PREFECT_LOCAL_STORAGE_PATH"], ignore_errors=True)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Fail the test in which Prefect started a server of its own all the same, as its events do."""
    module = sys.modules.get("prefect.server.api.server")
    started = list(module.SubprocessASGIServer._instances.values()) if module else []
    for one in started:
        one.stop()
    assert not started, "Prefect started a server of its own: something asked for it without a PREFECT_API_URL"


# A busy machine is not an error: Hypothesis times each example, and how fast it makes them.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# `--hypothesis-profile=nightly --timeout=3600`: minutes of random game-days (tests/scripted/test_properties.py).
settings.register_profile("nightly", settings.get_profile("busy"), max_examples=3000)
settings.load_profile("busy")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if PLAY_VARIABLE not in os.environ and (listed := quarantined()):
        config.hook.pytest_deselected(items=[item for item in items if is_listed(item.nodeid, listed)])
        items[:] = [item for item in items if not is_listed(item.nodeid, listed)]
    # The longest files first: the last one of all keeps a worker busy after the others have ended.
    items.sort(
        key=lambda item: (
            "undo_schedules" not in item.path.parts,
            item.get_closest_marker("gameday") is None,
            "torture" not in item.path.parts,
        )
    )


# Objects of imports and collection live to the end; without this every full collection walks through them.
gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
    gc.enable()
