"""The state in Prefect of a game-day that died, before the real server of the game-days asks the same."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
from prefect.exceptions import ObjectNotFound
from prefect.settings import PREFECT_API_URL, temporary_settings
from prefect.states import Completed, Crashed, Failed, Running, State

import gameday.tasks.flow_run
from gameday.checks.outcome import RunOutcome, RunResult
from gameday.tasks.flow_run import settle_flow_run
from gameday.values.results import Cleanliness

FLOW_RUN = uuid4()
DIRTY = RunResult(outcome=RunOutcome.FAILED, cleanliness=Cleanliness.DIRTY, exit_code=4, why="A taint is left.")
SAID = "Failed, cluster dirty. A taint is left."


class Server:
    """The client's part of a Prefect server that knows one flow run, or none."""

    def __init__(self, state: State[Any] | None) -> None:
        self.state = state
        self.tags: set[str] = set()
        self.given: list[tuple[UUID, State[Any], bool]] = []

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def read_flow_run(self, flow_run: UUID) -> Any:
        if self.state is None:
            raise ObjectNotFound(ValueError("404"))
        return SimpleNamespace(id=flow_run, state=self.state, tags=["xid-48", "outcome:unknown"])

    def update_flow_run(self, flow_run: UUID, *, tags: set[str]) -> None:
        self.tags = tags

    def set_flow_run_state(self, flow_run: UUID, state: State[Any], *, force: bool) -> None:
        self.given.append((flow_run, state, force))


def settled(monkeypatch: pytest.MonkeyPatch, state: State[Any] | None, url: str = "http://127.0.0.1:9/api") -> Server:
    server = Server(state)
    monkeypatch.setattr(gameday.tasks.flow_run, "get_client", lambda **_: server)
    with temporary_settings({PREFECT_API_URL: url}):
        settle_flow_run(str(FLOW_RUN), DIRTY)
    return server


@pytest.mark.parametrize("state", [Running(), Crashed()])
def test_a_run_that_died_gets_the_state_of_its_report(state: State[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    server = settled(monkeypatch, state)
    ((flow_run, given, force),) = server.given
    assert (flow_run, given.type, given.name, given.message) == (FLOW_RUN, "CRASHED", "Crashed", SAID)
    assert force
    assert server.tags == {"xid-48", "outcome:failed", "cluster:dirty"}


@pytest.mark.parametrize("state", [Completed(), Failed(), Crashed(message=SAID), None])
def test_a_run_that_ended_by_itself_keeps_its_state(state: State[Any] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settled(monkeypatch, state).given == []


def test_without_a_server_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gameday.tasks.flow_run, "get_client", lambda **_: pytest.fail("a server was asked"))
    with temporary_settings(restore_defaults={PREFECT_API_URL}):
        settle_flow_run(str(FLOW_RUN), DIRTY)
    settle_flow_run(None, DIRTY)
