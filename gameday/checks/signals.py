"""The signals that a plan awaits must come in time, and go in time after the remediation if the plan asks for it."""

from __future__ import annotations

from gameday.checks.deadlines import appears_within, clears_within
from gameday.checks.facts import target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.expect.base import Expectation, Signal
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan


def they_come(part: type[Expectation], plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Judge whether each signal of an expectation came within its bound of the fault."""
    return [_comes(signal, history, node) for _, signal in part.signals(plan.expect) for node in target_nodes(history)]


def they_end(part: type[Expectation], plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    """Judge whether each signal that has to go was gone within its bound of the remediation's end."""
    if not plan.recover.gives_node_back:
        return []
    signals = [signal for _, signal in part.signals(plan.expect) if signal.ends_within]
    return [_ends(signal, history, node) for signal in signals for node in target_nodes(history)]


def _comes(signal: Signal, history: History, node: str | None) -> Verdict:
    verdict = appears_within(
        history,
        node,
        signal.check,
        _sentence(signal.comes(node or "the target")),
        signal.within,
        signal.seen(history, node),
        absent=signal.absent(node),
    )
    if verdict.status is Status.BROKEN and (why := signal.why_unproved(history, node)):
        return verdict.model_copy(update={"status": Status.UNKNOWN, "why": why})
    return verdict


def _ends(signal: Signal, history: History, node: str | None) -> Verdict:
    assert signal.ends_within is not None
    return clears_within(
        history,
        node,
        signal.ends_check,
        _sentence(signal.ends(node or "the target")),
        signal.ends_within,
        signal.sightings(history, node),
        signal.gone(history, node),
    )


def _sentence(text: str) -> str:
    """Return a sentence with a capital if it begins with "the target"; a node's name stays as it is."""
    return f"T{text[1:]}" if text.startswith("the target") else text
