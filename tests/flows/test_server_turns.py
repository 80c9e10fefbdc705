"""Turns at the Prefect server: never more than the limit, and none held while a flow does its own work."""

from __future__ import annotations

import threading

from gameday.flows.server_turns import Turns


def test_a_turn_is_free_while_it_is_set_aside_and_is_waited_for_afterwards() -> None:
    turns = Turns(1)
    at_work, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def run_flow() -> None:
        with turns.turn():
            with turns.set_aside():
                at_work.set()
                go_on.wait(10)
            ended.set()

    flow = threading.Thread(target=run_flow)
    flow.start()
    assert at_work.wait(10)
    with turns.turn():  # would wait for ever if the flow at work had the only one
        go_on.set()
        assert not ended.wait(0.1)
    assert ended.wait(10)
    flow.join(10)
    with turns.turn():
        pass  # both gave theirs back


def test_a_flow_that_was_begun_without_a_turn_takes_none() -> None:
    turns = Turns(1)
    with turns.turn():
        other = threading.Thread(target=_set_aside, args=(turns,))
        other.start()
        other.join(10)
        assert not other.is_alive()
    with turns.turn(), turns.set_aside(), turns.turn():
        pass  # one turn in all, as before


def _set_aside(turns: Turns) -> None:
    with turns.set_aside():
        pass
