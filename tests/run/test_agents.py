"""Sending an agent to a node."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.faults.xid import XidParameters
from gameday.run import agents
from tests.support.runs import chosen_target, quick_plan


class SentError(Exception):
    """Far enough."""


def test_an_injector_that_becomes_ready_at_the_last_moment_still_holds_its_fault_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[Any] = []

    def send_agent(*arguments: Any) -> None:
        sent.extend(arguments)
        raise SentError

    monkeypatch.setattr(agents, "send_agent", send_agent)
    fault = XidParameters(xid=95, hold=timedelta(seconds=60))
    with pytest.raises(SentError):
        agents.inject_fault(SimpleNamespace(id="r", plan=quick_plan().plan), chosen_target("n"), fault, "pod")  # type: ignore[arg-type]
    _, _, task, deadline, _ = sent
    assert deadline > agents.AGENT_START_TIMEOUT + timedelta(seconds=task.hold_s)
