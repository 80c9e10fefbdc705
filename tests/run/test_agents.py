"""Sending an agent to a node."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.agent.task import AgentResult
from gameday.cluster.pods import PodSeen
from gameday.faults.xid import XidParameters
from gameday.run import agents
from gameday.values.results import Cleanliness
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


@pytest.mark.parametrize(
    ("termination", "words"),
    [
        (
            AgentResult(role="inject", ok=False, cleanliness=Cleanliness.CLEAN, error="no GPU 3").model_dump_json(),
            "Failed: no GPU 3",
        ),
        ("OOMKilled", "Failed OOMKilled"),
        (None, "Failed"),
    ],
)
def test_an_injector_that_did_not_get_ready_is_shown_with_its_own_error(termination: str | None, words: str) -> None:
    pod = PodSeen("p", "u", "inject", "n", "Failed", "", False, False, None, termination, None)
    assert agents._why_not_ready(pod) == words
    assert agents._why_not_ready(None) == "never seen"
