"""Probe the idle GPUs of a fleet, a few nodes at a time: look, write the intent, send the agent, read it, undo.

A probe never disturbs work. It comes through the scheduler and so gets free GPUs only. It gives them back when work
waits, when a process outside Kubernetes takes memory of its GPUs, and when anybody deletes it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from gameday.agent.security import security_of
from gameday.agent.task import ProbedNote, ProbeTask, notes_in
from gameday.cluster.manifests import GpuPodTemplate, probe_pod
from gameday.cluster.nodes import snapshot
from gameday.cluster.pods import PodFollower, PodSeen
from gameday.errors import AdapterError
from gameday.ledger.entries import DeletePod, Entry, object_prefix
from gameday.ledger.ledger import Ledger
from gameday.ledger.termination_message import termination_message
from gameday.ledger.undo import undo_entry
from gameday.plain_file import not_written
from gameday.run.agents import PRIORITY_CLASS_HINT
from gameday.run.targets import why_unfit
from gameday.runs.play import OpenSeason
from gameday.values.nodes import NodeRole, NodeSnapshot
from gameday.values.results import Cleanliness
from gameday_fleet.permission import Permission
from gameday_fleet.record import NodeLeftOut, ProbedGpu
from gameday_fleet.waiting import WaitingWork

Found = ProbedGpu | NodeLeftOut

VIRTUAL_SECONDS = 1.0
"""Duration of the load on virtual GPUs, on which clocks and rates settle at once."""
_START_WITHIN = timedelta(seconds=60)
"""Time for the pod to start, as for every agent: the node may have to pull the image (gameday/run/agents.py)."""
_MEASURES = timedelta(seconds=90)
"""Longest time of the measurements after the load: GEMM and copy 1 s, a copy over each link, and an all-reduce; NCCL's
start alone may take half a minute.
"""
_PLACED_WITHIN_S = 10.0
"""Seconds for the scheduler to place a probe on a node that just had free GPUs; after that somebody else has them."""
_LOOK_EVERY_S = 0.2
_NOT_BEGUN = "the run ended before its turn"
_WAITS_AT_MOST_S = 300.0
"""Seconds that a run waits while work waits for GPUs; then it ends with what it has."""


@dataclass
class Probing:
    """The probes of one fleet run."""

    season: OpenSeason
    ledger: Ledger
    pods: PodFollower
    permission: Permission
    waiting: WaitingWork
    seconds: float
    on_found: Callable[[Sequence[Found]], None]
    """Receives the figures of each node, in the thread of the run."""
    left: set[Cleanliness] = field(default_factory=set)
    """The states in which the probes left the cluster."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pause: threading.Event = field(default_factory=threading.Event)

    def run(self, nodes: Sequence[str], at_once: int) -> None:
        """Probe all nodes, up to `at_once` at a time, until all are done or the run is stopped."""
        todo = list(enumerate(nodes))
        running: set[Future[list[Found]]] = set()
        room_since: float | None = None
        with ThreadPoolExecutor(max_workers=at_once, thread_name_prefix="probe") as threads:
            while todo or running:
                if why := self.permission.why_not():
                    self.season.abort.request("guard", why)
                while todo and len(running) < at_once and not self.season.stopped and not self.waiting.who:
                    running.add(threads.submit(self._probe, *todo.pop(0)))
                room_since = (room_since or time.monotonic()) if self.waiting.who else None
                if room_since and time.monotonic() - room_since > _WAITS_AT_MOST_S:
                    self.season.abort.request("guard", f"{self.waiting.who} for {_WAITS_AT_MOST_S / 60:g} min")
                if not running:
                    if self.season.stopped:
                        self._write_down([NodeLeftOut(node=node, gpus=0, why=_NOT_BEGUN) for _, node in todo])
                        return
                    self._pause.wait(_LOOK_EVERY_S)
                    continue
                done, running = wait(running, _LOOK_EVERY_S, FIRST_COMPLETED)
                for future in done:
                    self._take(future)

    def _take(self, future: Future[list[Found]]) -> None:
        error = future.exception()
        if error is None:
            self._write_down(future.result())
        else:
            self.season.abort.request("guard", f"a probe broke off: {type(error).__name__}: {error}"[:300])
            self.left.add(Cleanliness.UNKNOWN)

    def _write_down(self, found: Sequence[Found]) -> None:
        """Pass the figures on. If the disk does not take them the run ends, and the running probes are undone."""
        try:
            self.on_found(found)
        except OSError as error:
            self.season.abort.request("guard", f"the figures are not written: {not_written(error, 'probes.jsonl')}")

    def _probe(self, index: int, node: str) -> list[Found]:
        """Return the figures of the node's free GPUs, or why there are none."""
        try:
            free, why = self._free_gpus(node)
            return self._measure(index, node, free) + self._busy(node, why) if free else self._busy(node, why)
        except AdapterError as error:
            if "PriorityClass" in str(error):
                self.season.abort.request("guard", f"{error}; {PRIORITY_CLASS_HINT}")
            return [NodeLeftOut(node=node, gpus=0, why=str(error))]

    def _busy(self, node: str, why: tuple[int, str]) -> list[Found]:
        return [NodeLeftOut(node=node, gpus=why[0], why=why[1])] if why[1] else []

    def _free_gpus(self, node: str) -> tuple[int, tuple[int, str]]:
        """Return how many GPUs no pod has, how many are left out, and why those are."""
        kubernetes = self.season.kubernetes
        profile = kubernetes.profile
        found = kubernetes.node_or_none(node)
        if found is None:
            return 0, (0, "is gone")
        seen: NodeSnapshot = snapshot(found)
        offered = seen.allocatable_gpus or 0
        if node in self.season.dirty_nodes:
            return 0, (offered, "still has something in that a dead run left")
        key, _, value = profile.required_label(NodeRole.GPU).partition("=")
        ordinary = profile.ordinary_taints(NodeRole.GPU)
        if why := why_unfit(seen, {key: value}, profile.quarantine_taint_keys, ordinary):
            return 0, (offered, why)
        holders = kubernetes.gpu_pods(node)
        if any(pod.partial or pod.claims for pod in holders):
            return 0, (
                offered,
                "pods have slices, shares or claims of its GPUs, so that nobody can count the free ones",
            )
        taken = sum(pod.gpus for pod in holders)
        if not offered:
            return 0, (0, "offers no GPU")
        pods = f"{len(holders)} pods" if len(holders) > 1 else "a pod"
        return max(0, offered - taken), (min(taken, offered), f"busy: held by {pods}" if taken else "")

    def _measure(self, index: int, node: str, gpus: int) -> list[Found]:
        """Send a probe for `gpus` GPUs, read it, and delete it. Raises AdapterError."""
        name = f"{object_prefix(self.ledger.header.run_id)}probe-{index}"
        deadline = _START_WITHIN + timedelta(seconds=self.seconds) + _MEASURES
        with self._lock:
            entry = self.ledger.intend(
                id=f"probe-{index}",
                act=f"create agent pod (probe) on {node}",
                node=node,
                undo=DeletePod(pod=name),
                expires=datetime.now(UTC) + deadline,
            )
        try:
            if self.season.stopped:
                return [NodeLeftOut(node=node, gpus=gpus, why="the run was stopped before it began")]
            self.season.kubernetes.create_pod(self._manifest(name, node, gpus, deadline))
            return self._read(name, node, gpus, self._await_end(name, deadline))
        finally:
            self._undo(entry)

    def _manifest(self, name: str, node: str, gpus: int, deadline: timedelta) -> dict[str, object]:
        profile = self.season.kubernetes.profile
        task = ProbeTask(
            run_id=self.ledger.header.run_id,
            node=node,
            gpus=gpus,
            burn_in_s=self.seconds,
            virtual_burn_in_s=min(VIRTUAL_SECONDS, self.seconds),
            temperature_max_c=93,
        )
        tolerated = tuple(key for key in profile.ordinary_taint_keys if key not in profile.quarantine_taint_keys)
        return probe_pod(
            name,
            task=task.model_dump_json(),
            run_id=task.run_id,
            node=node,
            gpus=gpus,
            profile=profile,
            deadline=deadline,
            security=security_of(task),
            template=GpuPodTemplate(profile.canary_image, profile.canary_priority_class, tolerated),
        )

    def _await_end(self, name: str, deadline: timedelta) -> str:
        """Wait until the probe ends by itself and return "", or return why it must yield or found no GPU."""
        why: list[str] = []

        def over() -> bool:
            seen = self.pods.seen(name)
            if seen is not None and seen.ended:
                return True
            if room := self.season.stopped or (f"yielded: {self.waiting.who}" if self.waiting.who else ""):
                why.append(room)
            return bool(why)

        def placed() -> bool:
            seen = self.pods.seen(name)
            return over() or bool(seen and seen.node)

        if not self._wait(placed, _PLACED_WITHIN_S):
            seen = self.pods.seen(name)
            return f"yielded before it began: {(seen.why_not_running if seen else '') or 'no GPU was free any more'}"
        if not why and not self._wait(over, deadline.total_seconds()):
            return "the probe left no result in time"
        return why[0] if why else ""

    def _wait(self, condition: Callable[[], bool], within_s: float) -> bool:
        """Wait for a condition that pods and other threads change."""
        ends = datetime.now(UTC) + timedelta(seconds=within_s)
        while not self.pods.wait(condition, _LOOK_EVERY_S):
            if datetime.now(UTC) >= ends:
                return False
        return True

    def _read(self, name: str, node: str, gpus: int, why: str) -> list[Found]:
        """Return the figures of a probe that has ended. Raises AdapterError."""
        if why:
            return [NodeLeftOut(node=node, gpus=gpus, why=why)]
        seen, result = self.pods.seen(name), termination_message(self.pods, name)
        if result is None or result.ended_by == "sigterm" or (seen and seen.gone):
            return [NodeLeftOut(node=node, gpus=gpus, why=_why_gone(seen))]
        notes = notes_in(self.season.kubernetes.pod_log(name), ProbedNote)
        found: list[Found] = [ProbedGpu.of(node, note) for note in notes if not note.why_not]
        reasons = {note.why_not: sum(n.why_not == note.why_not for n in notes) for note in notes if note.why_not}
        found += [NodeLeftOut(node=node, gpus=count, why=reason) for reason, count in reasons.items()]
        if not notes:
            found.append(NodeLeftOut(node=node, gpus=gpus, why=result.error or "the probe printed no figures"))
        return found

    def _undo(self, entry: Entry) -> None:
        """Delete the probe's pod, see it gone, and drop its entry; what is not proved stays for the reaper.

        So the ledger, one ConfigMap of 1 MiB, holds only the probes that run, however large the fleet is.
        """
        kubernetes, run_id = self.season.kubernetes, self.ledger.header.run_id
        done = undo_entry(kubernetes, entry, run_id, self.pods)
        try:
            with self._lock:
                if done.cleanliness is Cleanliness.CLEAN:
                    self.ledger.forget(entry)
                else:
                    self.ledger.settle(entry, done.cleanliness, "flow", done.evidence)
        except AdapterError:
            self.left.add(Cleanliness.UNKNOWN)
        self.left.add(done.cleanliness)


def _why_gone(seen: PodSeen | None) -> str:
    """Return why a probe has no result: it was preempted, evicted or deleted, or its agent failed."""
    if seen is None:
        return "the probe was never seen"
    if seen.gone or seen.reason in ("Preempting", "Evicted", "Preempted"):
        return f"yielded: the pod was deleted while it ran ({seen.reason or 'other work took its GPUs'})"
    return f"yielded: the pod was told to end ({seen.phase} {seen.reason})".replace(" )", ")")


def worst(left: set[Cleanliness]) -> Cleanliness:
    """Return how clean a fleet run leaves the cluster."""
    for one in (Cleanliness.DIRTY, Cleanliness.UNKNOWN):
        if one in left:
            return one
    return Cleanliness.CLEAN
