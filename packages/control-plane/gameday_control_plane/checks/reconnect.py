"""The clients of a restarted API server must come back soon, at little cost, and without waiting in vain."""

from __future__ import annotations

from gameday.checks.facts import at_most, first_fault, seconds_text, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedReconnect
from gameday_control_plane.values.api_loads import Outcome, Reconnected

ORDER = 63


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return by_history(plan, history)


def by_history(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdicts on the clients' return, their LISTs, and their time-outs."""
    containment = ControlPlane.of(plan.expect).containment
    expected = containment.reconnect if containment else None
    if expected is None:
        return []
    node, measured = target_nodes(history)[0], reconnected(history)
    why = ""
    if measured is None:
        absent = "the clients left no measurement" if first_fault(history, node) else stop_reason(history)
        why = f"not measured: {absent}"
    elif not any(seconds != 0 for seconds in measured.back_after_s):
        why = "not measured: the restart cut off none of the clients"
    return [
        _judged(name, text, bound, expected, None if why else measured, why, node)
        for name, text, bound in _of(expected)
    ]


def reconnected(history: History) -> Reconnected | None:
    """Return the figures of the run's restarted API server; None if none was restarted."""
    measured = (event.measured for event in history.of(LoadMeasured))
    return next((one for one in measured if isinstance(one, Reconnected)), None)


def _of(expected: ExpectedReconnect) -> tuple[tuple[str, str, str], ...]:
    """Return each verdict's check, expectation and bound."""
    return (
        ("containment-reconnect", "After the restart every client is connected again", at_most(expected.within)),
        (
            "containment-relists",
            "After the restart no client LISTs everything more often",
            f"≤ {expected.lists_at_most} each",
        ),
        (
            "containment-timeouts",
            "Until the server is ready it refuses at once, and no client waits in vain",
            f"≤ {expected.timeouts_at_most}",
        ),
    )


def _judged(
    name: str,
    text: str,
    bound: str,
    expected: ExpectedReconnect,
    measured: Reconnected | None,
    why: str,
    node: str | None,
) -> Verdict:
    if measured is None:
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, why, node)
    match name:
        case "containment-reconnect":
            held, found = _is_back(expected, measured)
        case "containment-relists":
            most = max(measured.lists)
            held, found = most <= expected.lists_at_most, f"{most} at most, {sum(measured.lists)} in all"
        case _:
            late = measured.outcomes.get(Outcome.TIMEOUT, 0)
            held, found = late <= expected.timeouts_at_most, f"{late}; {_refusals(measured)}"
    return containment_verdict(name, text, bound, found, Status.HELD if held else Status.BROKEN, "", node)


def _is_back(expected: ExpectedReconnect, measured: Reconnected) -> tuple[bool, str]:
    back = [seconds for seconds in measured.back_after_s if seconds is not None]
    last = f"the last after {seconds_text(max(back))}" if back else "none"
    held = len(back) == measured.clients and max(back) <= expected.within.total_seconds()
    return held, f"{len(back)} of {measured.clients}, {last}"


def _refusals(measured: Reconnected) -> str:
    told = (Outcome.THROTTLED, Outcome.UNAVAILABLE, Outcome.REFUSED, Outcome.NO_CONNECTION, Outcome.GONE)
    return ", ".join(f"{measured.outcomes.get(one, 0)} {one}" for one in told)
