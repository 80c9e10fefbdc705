"""A webhook without an endpoint: its effect on what it matches and on the rest, with verdicts of three values."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.checks.verdict import Status
from gameday.history.events import FaultInjected
from gameday.history.frames import SCHEMAS, Frames, conform
from gameday.report.figure import figures_of
from gameday_control_plane.checks import webhook
from gameday_control_plane.checks.webhook import REFUSED, SKIPPED
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.expect.control_plane import ExpectedWebhook
from gameday_control_plane.values.api_loads import MatchedWrite, NodeLeases, WebhookOutage
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing

BEGAN = next(event.written_at for event in history_of(passing()).of(FaultInjected))
ENDED = BEGAN + timedelta(seconds=45)
LEASES = NodeLeases(nodes=3, longest_s=14.8, node="n2")


def outage(**changes: Any) -> WebhookOutage:
    kept: dict[str, Any] = {
        "failure_policy": "fail",
        "began_at": BEGAN,
        "ended_at": ENDED,
        "before": (0.01, 0.02, 0.03),
        "writes": writes(*["refused"] * 40),
        "leases": LEASES,
        "out_after_s": 0.4,
    }
    return WebhookOutage(**kept | changes)


def writes(*outcomes: Any, seconds: float = 0.02) -> tuple[MatchedWrite, ...]:
    return tuple(MatchedWrite(sent_at=BEGAN, seconds=seconds, outcome=outcome) for outcome in outcomes)


def counted(metric: str, *values: float, name: str = "unreachable.gameday.dev") -> Frames:
    """Return a frame with a sample of the metric each second, the first one before the fault."""
    blank = dict.fromkeys(SCHEMAS["api_server"], "") | {"server": "a", "labels": f"name={name},type=validating"}
    rows = [
        blank | {"metric": metric, "time": BEGAN + timedelta(seconds=second - 1), "value": value}
        for second, value in enumerate(values)
    ]
    return Frames(api_server=conform("api_server", rows))


def judged(
    measured: WebhookOutage | None, frames: Frames | None = None, wanted: Any = "refused", **expected: Any
) -> dict[str, tuple[Status, str]]:
    plan = PLAN.model_copy(
        update={
            "expect": PLAN.expect.model_copy(
                update={"webhook": ExpectedWebhook(matched_writes=wanted, **expected)},
            )
        }
    )
    told = [Timed(20, LoadMeasured(node=NODE, measured=measured))] if measured else []
    verdicts = webhook.check(plan, history_of([*passing(), *told]), frames or counted(REFUSED, 2, 2, 9))
    return {one.check.removeprefix("webhook-"): (one.status, one.measured) for one in verdicts}


def test_one_that_fails_closed_and_only_for_what_it_matches_holds() -> None:
    assert judged(outage()) == {
        "matched-writes": (Status.HELD, "40 of 40"),
        "answer-time": (Status.HELD, "0.02 s; in the median 20 ms, and 20 ms without it"),
        "node-leases": (Status.HELD, "14.8 s unchanged at most, of 3 nodes"),
        "out": (Status.HELD, "0.40 s"),
        "called": (Status.HELD, f"7 by {REFUSED}"),
    }


@pytest.mark.parametrize(
    ("changes", "check", "measured"),
    [
        ({"writes": writes("admitted", *["refused"] * 40)}, "matched-writes", "40 of 41"),
        ({"writes": writes("failed", *["refused"] * 40)}, "matched-writes", "40 of 41"),
        ({"writes": writes(*["refused"] * 40, seconds=10)}, "answer-time", "10.0 s; in the median"),
        ({"leases": LEASES.model_copy(update={"longest_s": 44})}, "node-leases", "44.0 s unchanged at most"),
        ({"out_after_s": 12.0}, "out", "12.0 s"),
        ({"out_after_s": None}, "out", "never"),
    ],
)
def test_each_bound_can_be_broken(changes: dict[str, Any], check: str, measured: str) -> None:
    status, said = judged(outage(**changes))[check]
    assert status is Status.BROKEN and said.startswith(measured)


def test_one_that_fails_open_must_have_been_asked() -> None:
    admitted = outage(failure_policy="ignore", writes=writes(*["admitted"] * 40), out_after_s=None)
    held = judged(admitted, counted(SKIPPED, 0, 5), "admitted")
    assert "out" not in held and {status for status, _ in held.values()} == {Status.HELD}
    assert judged(admitted, counted(SKIPPED, 5, 5), "admitted")["called"][0] is Status.BROKEN
    assert judged(admitted, counted(SKIPPED, 0, 5, name="x"), "admitted")["called"][0] is Status.BROKEN


def test_what_was_not_measured_is_unknown() -> None:
    assert {status for status, _ in judged(None, Frames()).values()} == {Status.UNKNOWN}
    few = judged(outage(writes=writes("refused"), leases=None), Frames())
    assert few["matched-writes"][0] is Status.HELD
    assert {few[name][0] for name in ("answer-time", "node-leases", "called")} == {Status.UNKNOWN}
    short = judged(outage(ended_at=BEGAN + timedelta(seconds=10)))
    assert short["node-leases"][0] is Status.UNKNOWN, "a Lease may stay unchanged for so long in any case"


def test_figures_show_the_added_latency() -> None:
    events = [*passing(), Timed(20, LoadMeasured(node=NODE, measured=outage(leases=None)))]
    found = {one.name: one.value for one in figures_of(PLAN, history_of(events), Frames()).figures}
    assert found["webhook: refused writes"] == 40
    assert found["webhook: matched write without it: median"] == found["webhook: matched write: median"] == 0.02
    assert "webhook: longest time without a renewal of a node's Lease" not in found
