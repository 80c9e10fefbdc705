"""A logger for what is published outside of a flow."""

from __future__ import annotations

import logging

import pytest

import gameday.tasks.publish


@pytest.fixture
def flow_logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """A flow run's logger, which there is none of outside of one."""
    logger = logging.getLogger("test.publish")
    monkeypatch.setattr(gameday.tasks.publish, "get_run_logger", lambda: logger)
    return logger
