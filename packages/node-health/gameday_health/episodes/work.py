"""The work of a process on an episode: its claim, its watches, its record, and waits that anything can interrupt."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from gameday.agent.security import security_of
from gameday.agent.task import AgentResult, GpuUsersTask, MarkTask, QaTask, RemediateTask
from gameday.cluster.back_off import pause_s
from gameday.cluster.json_api import CONFLICT
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lease import Lease
from gameday.cluster.manifests import EPISODE_LABEL, agent_pod
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from gameday.errors import AdapterError, KubernetesError, LeaseLostError
from gameday.ledger.termination_message import termination_message
from gameday_health.episodes import transitions
from gameday_health.episodes.api import RepairApi
from gameday_health.episodes.evidence import with_log
from gameday_health.episodes.marks import show
from gameday_health.episodes.model import Episode
from gameday_health.episodes.node import NodeSeen, node_seen
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.episodes.store import EpisodeStore, Stored
from gameday_health.leading import CLAIM_DURATION, claim_of, holder_name
from gameday_health.model import Taint

_POLL_S = 0.1
_RETRY_S = (0.25, 5.0)
# The kubelet ends the agent this long after its budget, if nobody is alive to delete it.
_DEADLINE_MARGIN = timedelta(seconds=30)


SentTask = GpuUsersTask | MarkTask | QaTask | RemediateTask


class InterruptedStepError(Exception):
    """The current step is no longer the right one."""


@dataclass(frozen=True)
class Settings:
    """The parts of a repair that are the same for every episode."""

    profile: ClusterProfile
    policy: RepairPolicy
    taint: Taint
    claim: timedelta = CLAIM_DURATION
    """Time without a renewal after which another process takes the episode over."""

    def seen(self, node: dict[str, Any]) -> NodeSeen:
        """Return what a repair needs of a Node's JSON."""
        return node_seen(node, self.taint, self.profile.quarantine_taint_keys)


class EpisodeWork:
    """Work on one node's open episode; a context manager that holds the claim."""

    def __init__(self, settings: Settings, node: str, cancelled: Callable[[], str] = lambda: "") -> None:
        """Prepare the work; nothing is sent before the context is entered.

        Args:
            settings: The cluster and its rules.
            node: The node.
            cancelled: Returns why a person stops the repair, or an empty string. Called often.
        """
        self.settings = settings
        self.policy = settings.policy
        self.kubernetes = Kubernetes(settings.profile)
        self.api = RepairApi(self.kubernetes)
        self._node = node
        self._cancelled = cancelled
        self._store = EpisodeStore(self.api)
        self.holder = holder_name()
        self._claim = Lease(self.api, claim_of(node), self.holder, settings.claim)
        self._stored: Stored
        self.evidence = ""
        self._follower = Follower(
            self.kubernetes.core.list_node, None, settings.seen, field_selector=f"metadata.name={node}"
        )
        self.pods: PodFollower
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        """Take the claim, and read record and node.

        Raises:
            LeaseLostError: Another process works on the episode, or there is none.
            AdapterError: The API server refuses or does not answer.
        """
        with self._stack:
            self._stack.callback(self.kubernetes.close)
            self._stack.callback(self._claim.release)
            self._take_claim()
            self._stored = self._take_over_record()
            self.evidence = self._store.evidence(self._node)
            self.pods = PodFollower(self.kubernetes, self.episode.id, label=EPISODE_LABEL)
            self._stack.enter_context(self._follower)
            self._stack.enter_context(self.pods)
            self._follower.require_synced()
            self.pods.require_synced()
            self._stack = self._stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _take_claim(self) -> None:
        """Take the claim, after a dead holder's time if there is one."""
        deadline = time.monotonic() + 2 * self.settings.claim.total_seconds()
        while not self._claim.try_take():
            if time.monotonic() > deadline:
                raise LeaseLostError(f"another process repairs node {self._node}")
            time.sleep(_POLL_S * 5)
        self._claim.keep_renewing()

    def _take_over_record(self) -> Stored:
        """Write our name into the record, so that an earlier holder that is still alive can no longer write it."""
        while True:
            found = self._store.read(self._node)
            if found is None:
                raise LeaseLostError(f"node {self._node} has no episode")
            if found.episode.state.is_end:
                return found
            try:
                return self._store.write(found.episode.model_copy(update={"holder": self.holder}), found.version)
            except KubernetesError as error:
                if error.status != CONFLICT:
                    raise

    @property
    def episode(self) -> Episode:
        """The record as it was last written."""
        return self._stored.episode

    def node(self) -> NodeSeen | None:
        """Return the node as it was last seen, or None if it is gone."""
        found: NodeSeen | None = self._follower.named(self._node)
        return found

    def read_node(self) -> NodeSeen | None:
        """Return the node as the API server has it now."""
        found = self.api.node(self._node)
        return self.settings.seen(found) if found else None

    def next_step(self) -> transitions.Step | None:
        """Return the next step, or None once the episode has ended. Raises LeaseLostError."""
        if self.episode.state.is_end:
            return None
        if why := self._cancelled():
            return transitions.Cancel(why)
        return self._next(self.node())

    def _next(self, seen: NodeSeen | None) -> transitions.Step | None:
        if seen is not None and seen.uid == self.episode.uid:
            known = transitions.absorb(self.episode, seen, _now())
            if known is not self.episode:
                self.save(known)
        return transitions.next_step(self.episode, seen, self.policy, _now())

    def is_to_return(self, seen: NodeSeen | None) -> bool:
        """Return True if the node, as it is seen, is to be given back, or has just been. Raises LeaseLostError."""
        self.check_claim()
        return isinstance(self._next(seen), transitions.Return)

    def begin(self, step: transitions.Step) -> bool:
        """Write the intent of a step and show it on the node; return False if the step was already in progress."""
        seen = self.node()
        if seen is None:
            raise InterruptedStepError
        begun = transitions.begin(self.episode, step, seen, _now())
        is_new = begun is not self.episode
        if is_new:
            self.save(begun)
        self.show()
        return is_new

    def show(self) -> None:
        """Make the node's label and annotation agree with the record, while it is out of service."""
        seen = self.node()
        if seen and seen.ours:
            show(self.api, self.episode, seen)

    def save(self, episode: Episode) -> None:
        """Write the record. During an outage of the API server, wait for it as long as the claim holds.

        Raises:
            LeaseLostError: Another process has taken the episode over.
        """
        failures = 0
        while True:
            self.check_claim()
            try:
                self._stored = self._store.write(episode, self._stored.version, self.evidence or None)
                return
            except KubernetesError as error:
                if error.status == CONFLICT:
                    self._adopt_version(episode)
                else:
                    failures += 1
                    time.sleep(pause_s(failures, *_RETRY_S))

    def _adopt_version(self, episode: Episode) -> None:
        """Continue from the record's present version, if it is still ours."""
        found = self._store.read(self._node)
        if found is None or found.episode.id != episode.id or found.episode.holder != self.holder:
            raise LeaseLostError(f"another process has taken over the repair of node {self._node}")
        self._stored = found

    def check_claim(self) -> None:
        """Raise LeaseLostError if another process may be working on the episode."""
        if not self._claim.is_held:
            raise LeaseLostError(f"the claim on node {self._node} is lost: another process may repair it")

    def event(self, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about the node."""
        self.api.event(self._node, self.episode.uid, reason, f"{message} (episode {self.episode.id})", warning=warning)

    def wait(self, condition: Callable[[], bool], timeout_s: float, *, faults_interrupt: bool = False) -> bool:
        """Wait until a condition holds; return False after the timeout.

        Args:
            condition: Called every 0.1 s.
            timeout_s: The longest wait, seconds.
            faults_interrupt: A new fault on the node also ends the wait.

        Raises:
            InterruptedStepError: The node is gone, or a person took over or stopped the repair.
            LeaseLostError: The claim is lost.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            self.check_claim()
            self._check_still_wanted(faults_interrupt)
            if condition():
                return True
            if time.monotonic() > deadline:
                return False
            time.sleep(_POLL_S)

    def _check_still_wanted(self, faults_interrupt: bool) -> None:
        seen, episode = self.node(), self.episode
        if self._cancelled() or seen is None or seen.uid != episode.uid or not seen.ours:
            raise InterruptedStepError
        if episode.cordoned and not seen.cordoned:
            raise InterruptedStepError
        if faults_interrupt and any(fault not in episode.faults for fault in seen.faults):
            raise InterruptedStepError

    def run_agent(
        self, name: str, task: SentTask, within_s: float, *, faults_interrupt: bool = False
    ) -> AgentResult | None:
        """Send an agent, or find the one that was sent, and wait for its result; None if there is none in time.

        Arguments and errors are those of `wait`; also raises KubernetesError if the pod cannot be made.
        """
        if not self.send(name, task, within_s):
            return None
        self.wait(lambda: self._has_ended(name), within_s, faults_interrupt=faults_interrupt)
        return self.result_of(name)

    def send(self, name: str, task: SentTask, within_s: float) -> bool:
        """Make an agent's pod unless it was made before; return False if that one is gone without a trace."""
        act = self.episode.act
        assert act
        if act.uid_of(name):
            return self.pods.seen(name) is not None
        self.save(transitions.sent(self.episode, name, ""))
        manifest = agent_pod(
            name,
            task=task.model_dump_json(),
            role=task.role,
            run_id=self.episode.id,
            node=self._node,
            profile=self.settings.profile,
            deadline=timedelta(seconds=within_s) + _DEADLINE_MARGIN,
            security=security_of(task),
            owner_label=EPISODE_LABEL,
        )
        try:
            uid = self.kubernetes.create_pod(manifest)
        except KubernetesError as error:
            if error.status != CONFLICT:
                raise
            self.wait(lambda: self.pods.seen(name) is not None, within_s)
            found = self.pods.seen(name)
            uid = found.uid if found else "unknown"
        self.save(transitions.sent(self.episode, name, uid))
        return True

    def _has_ended(self, name: str) -> bool:
        pod = self.pods.seen(name)
        return pod is not None and pod.ended

    def result_of(self, name: str) -> AgentResult | None:
        """Return an agent's result, or None if it left none."""
        return termination_message(self.pods, name)

    def keep_log(self, name: str) -> str:
        """Return an agent's log and keep its end as evidence; empty if the log is no longer readable."""
        try:
            log = self.kubernetes.pod_log(name)
        except AdapterError:
            return ""
        self.evidence = with_log(self.evidence, name, log)
        return log

    def delete_agents(self) -> None:
        """Ask for the deletion of every agent's pod of this episode."""
        for pod in self.pods.present():
            self.kubernetes.delete_pod(pod.name)


def _now() -> datetime:
    return datetime.now(UTC)


def budget_left_s(began: datetime, within: timedelta) -> float:
    """Return the seconds left of a budget; all of it if the clock was set back meanwhile."""
    left = (began + within - _now()).total_seconds()
    return max(0.0, min(left, within.total_seconds()))
