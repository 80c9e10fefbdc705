"""Every QA check of the node must pass before it takes work; one that could not be measured proves nothing."""

from __future__ import annotations

from gameday.checks.facts import (
    breaks_gpu_nodes,
    first_few,
    in_place_of,
    judge_absence,
    not_yet,
    target_nodes,
    worst_status,
)
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import QaChecked, QaLeftOut, StepEnded
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step

ORDER = 90


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    if not plan.recover.gives_node_back:
        return []  # this node is not given back
    if not breaks_gpu_nodes(history):
        return []  # this node was not taken out of service
    return [_of(history, in_place_of(history, node)) for node in target_nodes(history)]


def _of(history: History, node: str | None) -> Verdict:
    results, left_out = history.about(QaChecked, node), history.about(QaLeftOut, node)
    failing = [(record, event) for record, event in results if event.ok is not True]
    phrases = [_phrase(event) for _, event in failing]
    if left_out:
        status, why = Status.UNKNOWN, f"left out: {left_out[-1][1].why}"
    elif not results:
        status, why = judge_absence(history, Step.QA_NODE, f"a QA result of {node}")
    elif any(ended.step == Step.QA_NODE for ended in history.of(StepEnded)):
        status, why = worst_status([event.ok for _, event in failing] or [True]), first_few(phrases)
    elif any(event.ok is False for _, event in failing):
        status, why = Status.BROKEN, first_few(phrases)
    else:
        status, why = Status.UNKNOWN, not_yet(history, "before QA had ended")
    return Verdict(
        check="qa",
        expectation=f"{node or 'The target'} passes every QA check before it takes work",
        bound="every check",
        measured=f"{len(results) - len(failing)} of {len(results)} checks" if results else "",
        status=status,
        step=Step.QA_NODE,
        why=why,
        evidence=tuple(record.seq for record, _ in failing),
        node=node,
    )


def _phrase(result: QaChecked) -> str:
    gpu = "" if result.gpu is None else f" on GPU {result.gpu}"
    if result.ok is None:
        return f"{result.check}{gpu} could not be measured" + (f" ({result.detail})" if result.detail else "")
    return f"{result.check}{gpu}: {result.value} {result.unit}".rstrip() + f", wanted {result.bound}"
