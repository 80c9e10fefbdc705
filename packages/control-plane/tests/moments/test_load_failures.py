"""A load whose agent died, was ended, or says that it failed did not run to its end."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gameday.agent.task import AgentResult
from gameday.values.results import Cleanliness
from gameday_control_plane.moments.api_canary import _failure

CLEAN = {"role": "inject", "ok": True, "cleanliness": Cleanliness.CLEAN, "ended_by": "done"}


def run_that_sees(termination: str | None) -> Any:
    seen = SimpleNamespace(termination=termination)
    return SimpleNamespace(pods=SimpleNamespace(seen=lambda _: seen))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, ""),
        ({"ended_by": "hold"}, ""),
        ({"ok": False, "ended_by": "error", "error": "1 client process(es) died"}, "1 client process(es) died"),
        ({"ok": False, "ended_by": "error", "error": "less than 15% of memory"}, "less than 15% of memory"),
        ({"ended_by": "sigterm"}, "its agent inject was ended from outside"),
    ],
)
def test_the_agents_last_word_decides(changes: dict[str, Any], said: str) -> None:
    termination = AgentResult.model_validate(CLEAN | changes).model_dump_json()
    assert _failure(run_that_sees(termination), "inject") == said


@pytest.mark.parametrize("termination", [None, "", "Killed"])
def test_an_agent_without_a_last_word_was_killed(termination: str | None) -> None:
    assert _failure(run_that_sees(termination), "inject") == "its agent inject left no result: it was killed"
