"""An ordinary client's small requests must be answered while the fault is in, and again once it is out.

A sample that was sent before the fault went in and answered after it counts: the fault may have slowed the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise

from gameday.checks.facts import at_most, first_fault, judge_absence, seconds_text, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import ApiServersRestarted, FaultUndone
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step
from gameday_control_plane.events import ApiCanarySampled, LoadLogged, LoadMeasured
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedApiCanary, ExpectedOutage
from gameday_control_plane.values.api_requests import ApiCanarySample, percentile

ORDER = 59
# The fewest samples for a 99th percentile that shows that a client is well: five rounds of four calls, our own choice.
# Fewer can still show that it is not well: a client that waits sends little.
_FEWEST_SAMPLES = 20


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    return [*during_fault(plan, history), *after_fault(plan, history)]


def during_fault(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdicts on the time with the fault in: latency, errors and gaps, for each target."""
    expected = ControlPlane.of(plan.expect).api_canary
    if expected is None:
        return []
    return [verdict for node in target_nodes(history) for verdict in _during(expected, history, node)]


def after_fault(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdict on the time with the load gone, for each target."""
    expected = ControlPlane.of(plan.expect).api_canary
    return [_after(expected, history, node) for node in target_nodes(history)] if expected else []


def longest_gap(samples: Sequence[ApiCanarySample], window: Window) -> float:
    """Return the longest time in a window without a successful answer to one kind of call, in seconds.

    Args:
        samples: The samples, in any order.
        window: The time to look at; its begin and its end count as answers.
    """
    longest = 0.0
    for call in {sample.kind for sample in samples}:
        mine = (sample for sample in samples if sample.kind == call and sample.is_served)
        answered = sorted(sample.ended_at for sample in mine)
        moments = [window.begin, *(at for at in answered if window.begin < at < window.end), window.end]
        gaps = (after - before for before, after in pairwise(moments))
        longest = max(longest, *(gap.total_seconds() for gap in gaps))
    return longest


@dataclass(frozen=True)
class Window:
    """The time span of the samples that are judged."""

    begin: datetime
    end: datetime

    def samples(self, history: History, node: str | None) -> list[ApiCanarySample]:
        """Return the API canary's samples that were under way in this time."""
        everything = (s for event in history.of(ApiCanarySampled) if event.node == node for s in event.samples)
        # A sample that the canary's own end cut off says nothing about the server.
        heard = (sample for sample in everything if sample.error != "ended")
        return [sample for sample in heard if sample.sent_at < self.end and sample.ended_at > self.begin]


def fault_window(history: History, node: str | None) -> Window | None:
    """Return the time from the fault going in to the end of its load; None if it did not go in or did not end.

    Without the clients' log, or what the load measured of itself, the load ends with the fault's undo.
    """
    found = first_fault(history, node)
    if found is None:
        return None
    fault = found[1]
    ends = [request.ended_at for event in history.of(LoadLogged) if event.node == node for request in event.requests]
    ends += [event.measured.ended_at for event in history.of(LoadMeasured) if event.node == node]
    ends = ends or [at for at in (_undone_at(history, fault.intent),) if at]
    return Window(fault.written_at, max(ends)) if ends and max(ends) > fault.written_at else None


def _undone_at(history: History, intent: str) -> datetime | None:
    return next((record.at for record, event in history.with_times(FaultUndone) if event.intent == intent), None)


def _well_from(history: History, intent: str) -> datetime | None:
    """Return when an ordinary client must be well again: when the fault is out and the run's own restart is over."""
    restarted = history.last(ApiServersRestarted)
    undone = _undone_at(history, intent)
    return max(undone, restarted.ready_at) if undone and restarted else undone


def _during(expected: ExpectedApiCanary, history: History, node: str | None) -> list[Verdict]:
    window = fault_window(history, node)
    samples = window.samples(history, node) if window else []
    if window is None or not samples:
        if first_fault(history, node) is None:
            status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
        else:
            status, why = judge_absence(history, Step.VERIFY_TAINT, "the API canary's samples")
            status = Status.UNKNOWN if status is Status.BROKEN else status
        return [_verdict(one, node, status, why=why) for one in _expectations(expected)]
    return [_verdict(one, node, *_judge(one, expected, samples, window)) for one in _expectations(expected)]


@dataclass(frozen=True)
class _Expectation:
    check: str
    text: str
    bound: str


def _expectations(expected: ExpectedApiCanary) -> tuple[_Expectation, ...]:
    if expected.outage:
        least, most = expected.outage.at_least, expected.outage.at_most
        return (
            _Expectation(
                "api-canary-outage",
                "The fault takes an ordinary client's answers away, and they come again soon",
                f"{seconds_text(least.total_seconds())} to {seconds_text(most.total_seconds())}",
            ),
        )
    return (
        _Expectation(
            "api-canary-latency",
            "99 of 100 small requests of an ordinary client are answered in time while the fault is in",
            at_most(expected.p99_within),
        ),
        _Expectation(
            "api-canary-errors",
            "Small requests of an ordinary client succeed while the fault is in",
            f"≤ {expected.errors} failed",
        ),
        _Expectation(
            "api-canary-gap",
            "An ordinary client is never without an answer for long while the fault is in",
            at_most(expected.longest_gap),
        ),
    )


def _judge(
    one: _Expectation, expected: ExpectedApiCanary, samples: Sequence[ApiCanarySample], window: Window
) -> tuple[Status, str, str, float | None]:
    """Return the status, what was measured, why, and the seconds if a duration was measured."""
    if expected.outage:
        return _judge_outage(expected.outage, samples, window)
    if one.check == "api-canary-errors":
        failed = [sample for sample in samples if not sample.is_served]
        status = Status.BROKEN if len(failed) > expected.errors else Status.HELD
        worst = f"{failed[0].kind}: {failed[0].status or failed[0].error}" if failed else ""
        return status, f"{len(failed)} of {len(samples)}", worst, None
    if one.check == "api-canary-gap":
        gap = longest_gap(samples, window)
        return _bounded(gap, expected.longest_gap), seconds_text(gap), "", gap
    p99 = percentile([sample.seconds for sample in samples], 0.99) or 0.0
    status = _bounded(p99, expected.p99_within)
    if status is Status.HELD and len(samples) < _FEWEST_SAMPLES:
        return Status.UNKNOWN, "", f"{len(samples)} samples while the load was on: fewer than {_FEWEST_SAMPLES}", None
    return status, seconds_text(p99), "", p99


def _judge_outage(
    outage: ExpectedOutage, samples: Sequence[ApiCanarySample], window: Window
) -> tuple[Status, str, str, float | None]:
    gap = longest_gap(samples, window)
    if gap < outage.at_least.total_seconds():
        return Status.BROKEN, seconds_text(gap), "the fault was hardly felt, so that the run proves little", gap
    return _bounded(gap, outage.at_most), seconds_text(gap), "", gap


def _bounded(seconds: float, bound: timedelta) -> Status:
    return Status.BROKEN if seconds > bound.total_seconds() else Status.HELD


def _after(expected: ExpectedApiCanary, history: History, node: str | None) -> Verdict:
    one = _Expectation(
        "api-canary-after",
        "Small requests of an ordinary client succeed in time again with the load gone",
        f"{at_most(expected.p99_within)}, none failed",
    )
    found = first_fault(history, node)
    begin = _well_from(history, found[1].intent) if found else None
    seen = [sample.sent_at for event in history.of(ApiCanarySampled) if event.node == node for sample in event.samples]
    if begin is None or not seen or max(seen) <= begin:
        status, why = judge_absence(history, Step.QA_NODE, "the API canary's samples with the load gone")
        status = Status.UNKNOWN if status is Status.BROKEN else status
        return _verdict(one, node, status, why=why, step=Step.QA_NODE)
    samples = [s for s in Window(begin, max(seen) + timedelta(days=1)).samples(history, node) if s.sent_at >= begin]
    failed = [sample for sample in samples if not sample.is_served]
    if not failed and len(samples) < _FEWEST_SAMPLES:
        why = f"{len(samples)} samples with the load gone: fewer than {_FEWEST_SAMPLES}"
        return _verdict(one, node, Status.UNKNOWN, why=why, step=Step.QA_NODE)
    p99 = percentile([sample.seconds for sample in samples], 0.99) or 0.0
    status = Status.BROKEN if failed else _bounded(p99, expected.p99_within)
    measured = f"{seconds_text(p99)}, {len(failed)} of {len(samples)} failed"
    why = f"{failed[0].kind}: {failed[0].status or failed[0].error}" if failed else ""
    return _verdict(one, node, status, measured, why, p99, Step.QA_NODE)


def _verdict(
    one: _Expectation,
    node: str | None,
    status: Status,
    measured: str = "",
    why: str = "",
    seconds: float | None = None,
    step: Step = Step.VERIFY_TAINT,
) -> Verdict:
    return Verdict(
        check=one.check,
        expectation=one.text,
        bound=one.bound,
        measured=measured,
        status=status,
        step=step,
        why=why,
        seconds=seconds,
        node=node,
    )
