"""Act as a profile says: what the detector sees, when it acts on it, and when it takes that back.

This knows nothing of the real detector's code. If a game-day holds against it, the game-day measures such a detector
correctly; only a real cluster shows whether the real detector behaves as its profile says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial

from gameday.detectors.facts import matching
from gameday.detectors.models import DetectorProfile, Ending, Rule
from gameday.faults.base import Layer
from gameday.values.results import RepairKind
from gameday.xid.lines import Kind
from gameday_health.detect import Detection
from gameday_rehearsal.fake_detector.actions import Actions, Effect
from gameday_rehearsal.fake_detector.repair import FakeRepairer
from gameday_rehearsal.fake_detector.sources import Cause, DcgmFields, KernelLogs, cause_in
from kubesim.client import ApiClient, Object, Reflector
from kubesim.controllers.events import EventRecorder
from kubesim.errors import ApiError
from kubesim.kubeconfig import Kubeconfig

log = logging.getLogger(__name__)

_UNPUBLISHED = timedelta(seconds=2)
"""Latency of an effect for which none is published; a quarter of the effect's bound if that is shorter."""
_TRY_AGAIN_S = 1.0


@dataclass
class Active:
    """A cause that lasts, and what was done about it."""

    cause: Cause
    rule: Rule
    acting: asyncio.Task[None] | None = None
    done: list[Effect] = field(default_factory=list)


class FakeDetector:
    """A detector for one event loop: nothing here is locked."""

    def __init__(
        self, profile: DetectorProfile, actions: Actions, nodes: Reflector, repairer: FakeRepairer | None = None
    ) -> None:
        """Prepare; `repairer` repairs the nodes that this detector quarantines, None if nobody does."""
        self._profile = profile
        self._repairer = repairer
        self._in_repair: set[str] = set()
        self._actions = actions
        self._nodes = nodes
        self._active: dict[tuple[str, str], Active] = {}
        self._ending: set[asyncio.Task[None]] = set()
        nodes.on(update=self._node_changed)

    def on_line(self, detection: Detection) -> None:
        """Take a line of a kernel log."""
        event = detection.event
        if event and event.kind is Kind.GPU_RESET and event.success:
            self._end(detection.node, Ending.GPU_RESET, lambda active: (event.pci or "") in active.cause.key)
        elif cause := cause_in(detection):
            self.seen(cause)

    def seen(self, cause: Cause) -> None:
        """Take a cause; one that is known already changes nothing."""
        key = (cause.node, cause.key)
        rule = matching(self._profile, cause.fault, cause.layer, dict(cause.facts))
        if rule is None or not rule.acts or key in self._active:
            return
        active = self._active[key] = Active(cause, rule)
        active.acting = asyncio.create_task(self._act(active))

    def over(self, node: str, key: str) -> None:
        """Note that a source no longer shows the cause."""
        self._end(node, Ending.FAULT_OUT, lambda active: active.cause.key == key)

    def _node_changed(self, old: Object, new: Object) -> None:
        if _boot(old) != _boot(new):
            self._end(new["metadata"]["name"], Ending.REBOOT, lambda _: True)

    async def _act(self, active: Active) -> None:
        """Write every effect at its own latency after the cause was seen."""
        rule = active.rule
        cordon = [rule.cordoned] if rule.cordoned else []
        effects: list[Effect] = [*rule.conditions, *rule.taints, *cordon, *rule.labels, *rule.events]
        begun = asyncio.get_running_loop().time()
        for effect in sorted(effects, key=_latency):
            passed = asyncio.get_running_loop().time() - begun
            await asyncio.sleep(max(0.0, _latency(effect) - passed))
            do = partial(self._actions.do, effect=effect, facts=dict(active.cause.facts), said=active.cause.said)
            active.done.append(effect)  # noted before the write: a write that is cancelled half way must be taken back
            await self._written(active.cause.node, do)
        self._begin_repair(active)
        if not _lasts(rule) and active.cause.layer is Layer.KERNEL_LOG:
            self._active.pop((active.cause.node, active.cause.key), None)  # the same line again is reported again

    def _begin_repair(self, active: Active) -> None:
        """Repair the node, unless it is being repaired already, or its fault is left to a person."""
        rule, node = active.rule, active.cause.node
        kinds = (RepairKind.REBOOT,) if rule.repaired_by is None else rule.repaired_by
        kind = next((one for one in kinds if one in (RepairKind.REBOOT, RepairKind.GPU_RESET)), None)
        if self._repairer is None or not rule.quarantines or kind is None or node in self._in_repair:
            return
        self._in_repair.add(node)
        pci = active.cause.key.rpartition(" ")[2]
        self._keep(asyncio.create_task(self._repair(self._repairer, node, kind, pci)))

    async def _repair(self, repairer: FakeRepairer, node: str, kind: RepairKind, pci: str) -> None:
        """Repair the node. If that fails its quarantine stays until the rule's own end of it."""
        await repairer.repair(node, kind, pci, partial(self._give_back, node))
        self._in_repair.discard(node)

    async def _give_back(self, node: str) -> None:
        """Take the quarantine off a repaired node."""
        self._in_repair.discard(node)
        for key, active in [one for one in self._active.items() if one[0][0] == node]:
            del self._active[key]
            await self._take_back(active)

    def _keep(self, task: asyncio.Task[None]) -> None:
        """Hold a reference, because the event loop holds only a weak one."""
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _end(self, node: str, ending: Ending, which: Callable[[Active], bool]) -> None:
        if node in self._in_repair:
            return  # the repair itself gives the node back, once it is tested
        for key, active in list(self._active.items()):
            if key[0] == node and which(active) and (ending in active.rule.ends_with or not _lasts(active.rule)):
                del self._active[key]
                self._keep(asyncio.create_task(self._take_back(active)))

    async def _take_back(self, active: Active) -> None:
        """Take back all effects except those that another cause of the node still holds."""
        if active.acting:
            active.acting.cancel()
            await asyncio.wait([active.acting])
        others = [one for one in self._active.values() if one.cause.node == active.cause.node]
        for effect in active.done:
            if not any(effect in other.done for other in others):
                await self._written(active.cause.node, partial(self._actions.take_back, effect=effect))

    async def _written(self, name: str, write: Callable[[Object], Awaitable[None]]) -> None:
        """Repeat a write until the API server has taken it, or the node is gone."""
        while node := self._nodes.store.get(name):
            try:
                await write(node)
                return
            except ApiError as error:
                if error.not_found:
                    return
                log.warning("node %s not written, trying again: %s", name, error)
                await asyncio.sleep(_TRY_AGAIN_S)


async def run_fake_detector(
    profile: DetectorProfile,
    kubeconfig: Kubeconfig,
    loki_url: str,
    nodes_url: str,
    hosts_url: str,
    ready: Callable[[], None],
    *,
    repair: bool,
) -> None:
    """Run until cancelled.

    Args:
        profile: The profile to play.
        kubeconfig: The stand-in's own rights.
        loki_url: The log store.
        nodes_url: The virtual nodes' server, for the host engines' values.
        hosts_url: The machines to repair, at the same server.
        ready: Called once the stand-in sees faults in every source that the detector reads.
        repair: Repair what is quarantined, as the profile's `repairs` describes.
    """
    component = f"{profile.name}-stand-in"
    async with ApiClient(kubeconfig, component) as api, asyncio.TaskGroup() as group:
        nodes, events = Reflector(api, "/api/v1/nodes"), EventRecorder(api, component)
        actions = Actions(api, events, profile.name)
        repairs = profile.repairs if repair else None
        repairer = FakeRepairer(api, actions, nodes, repairs, hosts_url) if repairs else None
        fake_detector = FakeDetector(profile, actions, nodes, repairer)
        connected = asyncio.Event()
        if "kernel log" in profile.reads:
            logs = KernelLogs(loki_url, fake_detector.on_line, connected.set)
        else:
            logs = None
            connected.set()
        try:
            fields = DcgmFields(f"{nodes_url}/dcgm", fields_of(profile) if "DCGM" in profile.reads else frozenset())
            for part in (nodes.run(), events.run(), fields.follow(fake_detector.seen, fake_detector.over)):
                group.create_task(part)
            await nodes.synced.wait()
            await connected.wait()
            ready()
            await asyncio.Event().wait()
        finally:
            if logs:
                logs.stop()


def fields_of(profile: DetectorProfile) -> frozenset[str]:
    """DCGM fields that some rule is about."""
    rules = [rule for rule in profile.rules if "dcgm_field" in rule.faults and rule.acts]
    return frozenset(str(name) for rule in rules for name in rule.when.get("field", ()))


def _latency(effect: Effect) -> float:
    """Seconds from the cause being seen to the effect."""
    typical = effect.typically
    return (min(effect.within / 4, _UNPUBLISHED) if typical is None else typical).total_seconds()


def _lasts(rule: Rule) -> bool:
    """Return True if there is anything to take back: Events only report the past."""
    return bool(rule.quarantines or rule.conditions or rule.labels)


def _boot(node: Object) -> str | None:
    found: str | None = ((node.get("status") or {}).get("nodeInfo") or {}).get("bootID")
    return found
