"""A webhook that cannot be asked must affect the writes it matches as the plan says, and no others."""

from __future__ import annotations

from datetime import timedelta

from gameday.checks.facts import at_most, first_fault, seconds_text, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday_control_plane.checks.api_canary import fault_window
from gameday_control_plane.events import LoadMeasured
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedWebhook
from gameday_control_plane.values.api_loads import WebhookOutage
from gameday_control_plane.values.api_requests import percentile

ORDER = 62
REFUSED = "apiserver_admission_webhook_rejection_count"
SKIPPED = "apiserver_admission_webhook_fail_open_count"
# The fewest samples that give a meaningful 99th percentile, as with the API canary.
_FEWEST_WRITES = 20


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    expected = ControlPlane.of(plan.expect).webhook
    if expected is None:
        return []
    return [*by_history(plan, history), *(_called(expected, history, frames, node) for node in target_nodes(history))]


def by_history(plan: Plan, history: History) -> list[Verdict]:
    """Return the verdicts on the matched writes, on the nodes' Leases and on the webhook's removal."""
    expected = ControlPlane.of(plan.expect).webhook
    if expected is None:
        return []
    verdicts = []
    for node in target_nodes(history):
        outage = webhook_outage(history, node)
        verdicts += [
            _matched(expected, history, outage, node),
            _answered(expected, history, outage, node),
            _leases(expected, history, outage, node),
        ]
        if expected.matched_writes == "refused":
            verdicts.append(_out(expected, history, outage, node))
    return verdicts


def webhook_outage(history: History, node: str | None) -> WebhookOutage | None:
    """Return what the fault's client measured on a target; None if it left no log."""
    measured = (event.measured for event in history.of(LoadMeasured) if event.node == node)
    return next((one for one in measured if isinstance(one, WebhookOutage)), None)


def _matched(expected: ExpectedWebhook, history: History, outage: WebhookOutage | None, node: str | None) -> Verdict:
    text = f"Every write that the webhook matches is {expected.matched_writes}"
    name, bound = "webhook-matched-writes", f"all {expected.matched_writes}"
    if outage is None or not outage.writes:
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, _absent(history, node), node)
    as_expected = sum(write.outcome == expected.matched_writes for write in outage.writes)
    status = Status.HELD if as_expected == len(outage.writes) else Status.BROKEN
    return containment_verdict(name, text, bound, f"{as_expected} of {len(outage.writes)}", status, "", node)


def _answered(expected: ExpectedWebhook, history: History, outage: WebhookOutage | None, node: str | None) -> Verdict:
    text = "99 of 100 writes that the webhook matches are answered in time"
    name, bound = "webhook-answer-time", at_most(expected.answered_within)
    if outage is None or len(outage.writes) < _FEWEST_WRITES:
        why = f"{len(outage.writes)} writes: fewer than {_FEWEST_WRITES}" if outage else _absent(history, node)
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, why, node)
    p99 = percentile((write.seconds for write in outage.writes), 0.99) or 0.0
    median = percentile((write.seconds for write in outage.writes), 0.5) or 0.0
    without = percentile(outage.before, 0.5) or 0.0
    measured = f"{seconds_text(p99)}; in the median {median * 1000:.0f} ms, and {without * 1000:.0f} ms without it"
    return containment_verdict(name, text, bound, measured, _bounded(p99, expected.answered_within), "", node)


def _leases(expected: ExpectedWebhook, history: History, outage: WebhookOutage | None, node: str | None) -> Verdict:
    text = "The nodes' Leases are renewed while the webhook is in"
    name, bound = "webhook-node-leases", at_most(expected.leases_renewed_within)
    leases = outage.leases if outage else None
    if outage is None or leases is None:
        why = "not measured: the nodes' Leases could not be listed" if outage else _absent(history, node)
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, why, node)
    status = _bounded(leases.longest_s, expected.leases_renewed_within)
    if status is Status.HELD and outage.ended_at - outage.began_at <= expected.leases_renewed_within:
        why = f"the webhook was in for no longer than {seconds_text(expected.leases_renewed_within.total_seconds())}"
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, why, node)
    measured = f"{seconds_text(leases.longest_s)} unchanged at most, of {leases.nodes} nodes"
    why = f"node {leases.node}" if status is Status.BROKEN else ""
    return containment_verdict(name, text, bound, measured, status, why, node)


def _out(expected: ExpectedWebhook, history: History, outage: WebhookOutage | None, node: str | None) -> Verdict:
    text = "A write that the webhook matched is admitted again once it is deleted"
    name, bound = "webhook-out", at_most(expected.out_within)
    if outage is None:
        return containment_verdict(name, text, bound, "", Status.UNKNOWN, _absent(history, node), node)
    if outage.out_after_s is None:
        return containment_verdict(name, text, bound, "never", Status.BROKEN, "no write was admitted again", node)
    status = _bounded(outage.out_after_s, expected.out_within)
    return containment_verdict(name, text, bound, seconds_text(outage.out_after_s), status, "", node)


def _called(expected: ExpectedWebhook, history: History, frames: Frames, node: str | None) -> Verdict:
    """Judge by the API servers' own counter whether the webhook was in force; admitted writes alone do not show it."""
    text = "By the API servers' own count, writes came to the webhook and it could not be asked"
    metric, window = REFUSED if expected.matched_writes == "refused" else SKIPPED, fault_window(history, node)
    rows = frames.api_server
    if window is None or rows[rows.time >= window.begin].empty:
        why = "not measured: no samples of the API servers" if window else _absent(history, node)
        return containment_verdict("webhook-called", text, "≥ 1", "", Status.UNKNOWN, why, node)
    counted = rows[(rows.metric == metric) & (rows.labels.str.contains("name=unreachable.gameday.dev"))]
    before, after = counted[counted.time < window.begin], counted[counted.time >= window.begin]
    series = ["server", "code", "labels"]
    grown = after.groupby(series).value.max().sub(before.groupby(series).value.max(), fill_value=0).sum()
    status = Status.HELD if grown >= 1 else Status.BROKEN
    return containment_verdict("webhook-called", text, "≥ 1", f"{grown:.0f} by {metric}", status, "", node)


def _bounded(seconds: float, bound: timedelta) -> Status:
    return Status.BROKEN if seconds > bound.total_seconds() else Status.HELD


def _absent(history: History, node: str | None) -> str:
    if first_fault(history, node) is None:
        return f"not reached: {stop_reason(history)}"
    return "not measured: the client that writes left no log"
