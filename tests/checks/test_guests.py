"""A guest that was down, died or was cut off proves nothing by its silence; one that writes elsewhere is broken."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.checks.run import run_checks
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import (
    BystanderChanged,
    BystandersWatched,
    Event,
    GuestNamed,
    GuestState,
)
from gameday.history.frames import Frames
from gameday.plan.expectations import Expectations
from gameday.plan.models import Plan
from tests.report.run_builder import FAULT_AT, NODE, PLAN, Timed, at, detector_off, history_of

CONDITION = {"type": "GPUXidFault", "status": "True", "within": "5s", "clears_within": "60s"}
NAMED = Timed(0.5, GuestNamed(name="npd", version="v1"))
WATCHED = Timed(0.7, BystandersWatched(nodes=7))


def state(seconds: float, change: str, node: str | None = NODE, detail: str = "") -> Timed:
    event = {"node": node, "change": change, "at": at(seconds), "detail": detail}
    return Timed(seconds, GuestState.model_validate(event))


def plan(**expect: Any) -> Plan:
    given = expect or {"conditions": [CONDITION]}
    return PLAN.model_copy(update={"expect": Expectations.model_validate(given)})


def verdict(check: str, *events: Timed, **expect: Any) -> Verdict:
    history = history_of([*detector_off(), *events])
    return next(one for one in run_checks(plan(**expect), history, Frames()) if one.check == check)


RUNNING = (NAMED, state(0.6, "running"))


def test_silence_of_a_guest_that_watched_is_broken() -> None:
    assert verdict("condition-set", *RUNNING).status is Status.BROKEN


@pytest.mark.parametrize(
    ("events", "why"),
    [
        ((NAMED,), "was not seen running"),
        ((NAMED, state(0.6, "down")), "did not watch when the fault went in"),
        ((*RUNNING, state(FAULT_AT + 1, "ended by itself", detail="exit status 2")), "exit status 2"),
        ((*RUNNING, state(FAULT_AT + 1, "flooded")), "thrown away"),
        ((*RUNNING, state(FAULT_AT + 1, "not answering", node=None)), "did not answer"),
        ((*RUNNING, state(2, "flooded")), "did not watch when the fault went in"),
    ],
    ids=["unseen", "down", "died", "flooded", "no answer", "flooded before"],
)
def test_silence_of_a_guest_that_did_not_watch_is_unknown(events: tuple[Timed, ...], why: str) -> None:
    for check, expect in (
        ("condition-set", {}),
        ("stays-schedulable", {"stays_schedulable_for": timedelta(seconds=5)}),
    ):
        found = verdict(check, *events, **expect)
        assert found.status is Status.UNKNOWN
        assert why in found.why


def test_a_guest_that_started_again_before_the_fault_watched() -> None:
    assert verdict("condition-set", *RUNNING, state(2, "ended by itself"), state(3, "running")).status is Status.BROKEN


def test_a_guest_that_only_its_node_took_down_is_judged() -> None:
    assert verdict("condition-set", *RUNNING, state(FAULT_AT + 1, "down")).status is Status.BROKEN


def test_an_alert_of_dcgm_comes_without_the_guest() -> None:
    by_dcgm = {"alerts": [{"name": "GPUXidHardware", "within": "20s"}]}
    by_taint = {"alerts": [{"name": "NodeQuarantined", "within": "20s"}]}
    assert verdict("alert-fires", NAMED, **by_dcgm).status is Status.BROKEN
    assert verdict("alert-fires", NAMED, **by_taint).status is Status.UNKNOWN


def changed(seconds: float, what: str, value: str, **more: Any) -> Timed:
    event: Event = BystanderChanged.model_validate(
        {"node": "gpu-node-09", "what": what, "value": value, "at": at(seconds), **more}
    )
    return Timed(seconds, event)


def test_a_guest_that_keeps_to_its_nodes_holds() -> None:
    kept = verdict("guest-kept-to-its-nodes", *RUNNING, WATCHED, changed(2, "taint", "before=the:fault"))
    assert (kept.status, kept.measured) == (Status.HELD, "0 writes to 7 other nodes")


@pytest.mark.parametrize(
    ("what", "value"), [("taint", "a=b:NoSchedule"), ("cordon", "unschedulable"), ("condition", "Disk=True")]
)
def test_a_write_to_another_node_is_broken_and_named(what: str, value: str) -> None:
    broken = verdict("guest-kept-to-its-nodes", *RUNNING, WATCHED, changed(FAULT_AT + 2, what, value))
    assert broken.status is Status.BROKEN
    assert broken.why == f"gpu-node-09: {what} {value}"


def test_a_new_condition_counts_where_it_reports_the_fault() -> None:
    healthy = changed(FAULT_AT + 2, "condition", "GPUXidFault=False", new_condition=True)
    assert verdict("guest-kept-to-its-nodes", *RUNNING, WATCHED, healthy).status is Status.HELD
    report = changed(FAULT_AT + 2, "condition", "GPUXidFault=True", new_condition=True)
    assert verdict("guest-kept-to-its-nodes", *RUNNING, WATCHED, report).status is Status.BROKEN


def test_nothing_is_known_where_no_other_node_was_watched() -> None:
    assert verdict("guest-kept-to-its-nodes", *RUNNING).status is Status.UNKNOWN


def test_nothing_is_judged_where_the_season_breaks_every_other_node() -> None:
    watched = Timed(0.7, BystandersWatched(nodes=0, left_out=("gpu-node-09",)))
    with pytest.raises(StopIteration):
        verdict("guest-kept-to-its-nodes", *RUNNING, watched)
