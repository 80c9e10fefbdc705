"""Our own policies are judged on the corpus' kernel lines, as the controller would act, without a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from gameday.cluster.loki import LogLine, nanoseconds
from gameday.corpus.load import shipped_cases
from gameday.corpus.models import Answer, Happens, Layer, Step
from gameday.xid.decide import Response
from gameday_health import transitions
from gameday_health.detect import LineReader, NodeLine
from gameday_health.model import LogProgress, NodeState, NodeView
from gameday_health.policy import Policy
from gameday_health.policy_files import kernel_signal, load_policy

NODE, KEY = "n1", "trainy.konduktor.ai/faulty"
BEGIN = datetime(2026, 11, 27, 21, 0, 2, tzinfo=UTC)  # later than every time that is written in a case's lines
APART = timedelta(seconds=60)
# Our own failures. The policy conservative waits for a second error of the GPU within a day where the driver calls the
# first neither fatal nor says what has to be done; a call for support is no reason for it at all (54, 74).
FAILS = {
    "default": "",
    "conservative": """
        two-gpus-one-reset xid-109-context-switch xid-110 xid-119-gsp-timeout xid-119-in-azures-words
        xid-120-gsp-exception xid-140-unrecovered-ecc xid-143 xid-151 xid-155 xid-156-resource-retired xid-158
        xid-46-code-only xid-46 xid-48-double-bit-ecc xid-48-then-row-remapped xid-54 xid-62-microcontroller-halt
        xid-64-remapper-full xid-74-fatal xid-95-in-the-old-form xid-95-of-a-mig-instance xid-95-of-the-cache
        xid-95-storm xid-95-uncontained-ecc""",
}
KERNEL_CASES = [case for case in shipped_cases().values() if case.layer is Layer.KERNEL_LOG]


class Judged:
    """A node under a policy, by the controller's own transitions."""

    def __init__(self, policy: Policy) -> None:
        self._policy, self._reader = policy, LineReader(policy.other_line)
        self._boots, self._now = 1, BEGIN
        self._is_tainted = False
        self._state: NodeState = transitions.initial_state(self._view(), LogProgress(), KEY, BEGIN - APART)

    @property
    def answer(self) -> Answer:
        """The node's state, as a repairer leaves it, which returns a node once its faults are remedied."""
        return Answer.ACT if self._state.active() else Answer.LEAVE

    def take(self, step: Step) -> None:
        """Show the node's next lines to the controller, or let something happen to the node."""
        self._now += APART
        if step.happens is Happens.RESET:
            for fault in self._state.active()[:1]:
                transitions.apply_gpu_reset(self._state, fault.pci, self._now, self._now)
        elif step.happens:
            self._boots += step.happens is Happens.BOOT
            self._is_tainted = self._is_tainted and step.happens is not Happens.RETURN
            transitions.update_view(self._state, self._view(), KEY, self._now)
        for text in _lines(step):
            self._now += timedelta(milliseconds=1)
            self._read(text)

    def _view(self) -> NodeView:
        taints = [{"key": KEY, "value": "true", "effect": "NoSchedule"}] if self._is_tainted else []
        return NodeView.of(
            {
                "metadata": {"name": NODE},
                "spec": {"taints": taints},
                "status": {"nodeInfo": {"bootID": str(self._boots)}},
            }
        )

    def _read(self, text: str) -> None:
        found = self._reader.read(NodeLine(NODE, LogLine(nanoseconds(self._now), (), text)))
        event, line, state = found.event, found.line, self._state
        if event is None or not self._policy.trusts(event) or transitions.ignore_reason(state, line, event):
            return
        signal = replace(kernel_signal(event, NODE, line.at), key=transitions.line_key(line, event))
        decision = self._policy.decide(signal)
        is_enough = decision.response is Response.QUARANTINE
        if decision.response is Response.WATCH and decision.rule and decision.rule.watch:
            is_enough = transitions.count_sighting(state, signal, decision.rule) >= decision.rule.watch.times
        transitions.record(state, signal)
        if is_enough:
            transitions.add_fault(state, signal, decision, self._now)
            state.unwritten_faults.clear()
            self._is_tainted = True
            transitions.update_view(state, self._view(), KEY, self._now)


def _lines(step: Step) -> Iterator[str]:
    for _ in range(step.repeat):
        yield from (step.lines or "").splitlines()


def answer_of(policy: Policy, steps: Iterable[Step]) -> Answer:
    node = Judged(policy)
    for step in steps:
        node.take(step)
    return node.answer


@pytest.mark.parametrize("name", FAILS)
def test_our_policies_answer_each_case_as_nvidia_does(name: str) -> None:
    policy = load_policy(name).policy
    wrong = {case.name for case in KERNEL_CASES if answer_of(policy, case.steps) is not case.answer}
    assert sorted(wrong) == sorted(FAILS[name].split())


def test_a_policy_that_never_acts_is_found_wrong() -> None:
    policy = load_policy().policy
    mute = policy.model_copy(update={"rules": policy.rules[-1:]})
    acts = [case for case in KERNEL_CASES if case.answer is Answer.ACT]
    assert acts and all(answer_of(mute, case.steps) is Answer.LEAVE for case in acts)
