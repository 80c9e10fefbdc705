"""Fixtures of the tests about faults."""

from __future__ import annotations

import pytest

from gameday.faults import critical_unit_stopped, node_reboot, node_shutdown
from tests.faults.gpu_model import ModelHost


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the host's timers go off at once."""
    for module in (critical_unit_stopped, node_reboot, node_shutdown):
        monkeypatch.setattr(module, "DELAY_S", 0.1)
    monkeypatch.setattr("gameday.faults.critical_unit_stopped._LOOK_EVERY_S", 0.01)
