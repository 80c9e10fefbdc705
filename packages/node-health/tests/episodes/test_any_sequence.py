"""No sequence of crashes and events returns a node unproved, repairs under running work, or exceeds a rung's limit."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.xid.catalogue import Remedy
from gameday_health.episodes import transitions
from gameday_health.episodes.model import Scope, State
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.episodes.transitions import Drain, HandOver, Repair, Return, Step, Validate
from tests.health.episodes.worlds import NODE, OTHER_PCI, PCI, T0, fault

POLICY = RepairPolicy()
RESTART = {"repair": "restart-workload", "limit": 2}
LADDER = [RESTART, *({"repair": name, "limit": 2} for name in ("gpu-reset", "driver-restart", "reboot"))]
READS = {"burn_in": None}
PARTLY = RepairPolicy.model_validate({"ladder": LADDER, "drain": {"scope": "faulty-gpu"}, "qa": READS})
LOADED = PARTLY.model_copy(update={"qa": PARTLY.qa.model_validate({"floors": {"gemm_tflops": 1}})})
POLICIES = pytest.mark.parametrize("policy", [POLICY, PARTLY, LOADED], ids=["default", "partly", "loaded"])
TROUBLE = ("failed", "failed", "dies before", "dies after", "boot", "untaint", "cordon")
FAULTS = {"fault": PCI, "fault elsewhere": OTHER_PCI}
EVENTS = ("done", "done", "done", *TROUBLE, *FAULTS)


class Simulated:
    """A node, the agents that really ran on it, and a process that dies whenever the test wants it to."""

    def __init__(self, policy: RepairPolicy, remedy: Remedy = Remedy.GPU_RESET) -> None:
        self.policy = policy
        self.remedy = remedy
        self.node = replace(NODE, faults=(fault(remedy=remedy),))
        self.work = {PCI, OTHER_PCI, "0000:9a:00"}
        """The GPUs that pods are at work on."""
        self.now = T0
        self.episode = transitions.open_episode(self.node, None, T0)
        self.ran: Counter[str] = Counter()
        self.sent: set[int] = set()
        self.proof: tuple[str, frozenset[object]] | None = None
        """Boot and faults that QA really saw when it passed, since the last repair."""

    def play(self, event: str) -> None:
        self.now += timedelta(seconds=10)
        match event:
            case "fault" | "fault elsewhere":
                after_s = (self.now - T0).total_seconds()
                late = fault(after_s=after_s, remedy=self.remedy, device=FAULTS[event])
                self.node = replace(self.node, faults=(*self.node.faults, late))
            case "boot":
                self.node = replace(self.node, boot=f"{self.node.boot}+")
            case "cordon":
                self.node = replace(self.node, cordoned=not self.node.cordoned)
            case "untaint":
                self.node = replace(self.node, ours=False)
            case _:
                self._step(event)

    def _step(self, event: str) -> None:
        self.episode = transitions.absorb(self.episode, self.node, self.now)
        step = transitions.next_step(self.episode, self.node, self.policy, self.now)
        if step is None:
            return
        self.episode = transitions.begin(self.episode, step, self.node, self.now)
        why = "it failed" if event == "failed" else ""
        if event == "dies before":
            return
        self._act(step, why)
        if event != "dies after":
            self._finish(step, why)

    def _act(self, step: Step, why: str) -> None:
        if isinstance(step, Repair) and step.number not in self.sent:  # a pod of this name cannot be made twice
            self.sent.add(step.number)
            self._assert_idle(step)
            self.ran[step.rung.repair] += 1
            self.proof = None
        if isinstance(step, Drain) and not why:
            leave = set(self.episode.faulty_gpus) if step.scope is Scope.FAULTY_GPU else set(self.work)
            self.work -= leave
        if isinstance(step, Validate):
            assert not (self.work and self.policy.qa.needs_idle_gpus)
        if isinstance(step, Validate) and not why:
            self.proof = (self.node.boot, frozenset(self.node.faults))
        if isinstance(step, Return) and self.node.ours:
            assert self.proof == (self.node.boot, frozenset(self.node.faults))
            self.node = replace(self.node, ours=False)

    def _assert_idle(self, step: Repair) -> None:
        """No repair is under running work: a reset has an idle GPU, and all that is stronger an idle node."""
        if step.rung.repair in ("restart-workload", "gpu-reset"):
            known = self.episode.faults[: self.episode.attempts[-1].faults]
            assert not self.work & {one.device for one in known}
        else:
            assert not self.work

    def _finish(self, step: Step, why: str) -> None:
        match step:
            case Drain(scope=scope):
                self.episode = transitions.end_drain(self.episode, scope, why, self.now)
            case Repair():
                self.episode = transitions.end_attempt(self.episode, why, "", self.now)
            case Validate():
                self.episode = transitions.end_qa(self.episode, why, "", self.now)
            case Return():
                self.episode = transitions.end(self.episode, State.RETURNED, "", self.now)
            case HandOver(why=reason):
                self.episode = transitions.end(self.episode, State.HANDED_OVER, reason, self.now)
            case _:
                self.episode = transitions.end(self.episode, State.CANCELLED, "", self.now)


@POLICIES
@settings(max_examples=150, deadline=None)
@given(st.sampled_from([Remedy.GPU_RESET, Remedy.NONE]), st.lists(st.sampled_from(EVENTS), max_size=60))
def test_nothing_returns_a_node_unproved_or_repairs_under_work_or_runs_a_rung_too_often(
    policy: RepairPolicy, remedy: Remedy, events: list[str]
) -> None:
    simulated = Simulated(policy, remedy)
    for event in events:
        simulated.play(event)
        for rung in policy.ladder:
            assert simulated.ran[rung.repair] <= rung.limit
    if simulated.episode.state is State.RETURNED:
        assert simulated.episode.attempts and simulated.episode.qa[-1].outcome == "passed"


@POLICIES
@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from(EVENTS), max_size=30))
def test_every_episode_ends_once_nothing_fails_any_more(policy: RepairPolicy, events: list[str]) -> None:
    simulated = Simulated(policy)
    for event in events:
        simulated.play(event)
    for _ in range(20):
        simulated.play("done")
    assert simulated.episode.state.is_end
