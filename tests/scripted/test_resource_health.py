"""The health that a kubelet reports of a pod's devices, over a whole game-day."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.history.events import Event, FaultInjected, FaultUndone, Refused, SignSeen
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import Played, play
from tests.support.scripted.plans import changed, loaded, without_repair
from tests.support.scripted.wire import Moment

NODE, PODS = "gpu-node-1", "/api/v1/namespaces/training/pods"
CLAIM = "claim:gpu"
PLACE = f"training/train, main, {CLAIM}: gpu.gameday.dev/{NODE}/gpu-2"
POD = {"metadata": {"name": "train"}, "spec": {"nodeName": NODE, "containers": [{"name": "main", "image": "train"}]}}


class Kubelet:
    """A pod with a device, and a kubelet that reports its health so long after the fault came and went."""

    def __init__(self, unhealthy_s: float | None, healthy_s: float | None, at_first: str = "Healthy") -> None:
        self._after = {FaultInjected: (unhealthy_s, "Unhealthy"), FaultUndone: (healthy_s, "Healthy")}
        self._at_first = at_first

    def prepare(self, cluster: ScriptedCluster) -> None:
        self._cluster = cluster
        cluster.server.administrator("POST", PODS, POD)
        cluster.clock.sleep(1)  # the pod starts
        self._report(self._at_first)

    def on_write(self, event: Event, moment: Moment) -> None:
        seconds, health = self._after.get(type(event), (None, ""))
        if moment == "after" and seconds is not None:
            self._cluster.clock.after(seconds, lambda: self._report(health))

    def _report(self, health: str) -> None:
        stored = self._cluster.server.store.get("pods", "training", "train")
        assert stored is not None
        device = {"resourceID": PLACE.rpartition(" ")[2], "health": health}
        (container,) = stored.obj["status"]["containerStatuses"]
        container = {**container, "allocatedResourcesStatus": [{"name": CLAIM, "resources": [device]}]}
        status = {**stored.obj["status"], "containerStatuses": [container]}
        self._cluster.server.administrator("PUT", f"{PODS}/train/status", {**stored.obj, "status": status})


def played(kubelet: Kubelet, reports: Path, **expected: str) -> Played:
    expect = {"resource_health": {"within": "10s", "clears_within": "20s", **expected}, "allow_other_alerts": True}
    plan = loaded(changed(without_repair({"type": "xid", "xid": 94}), "expect", expect))
    return play(plan, prepare=kubelet.prepare, on_write=kubelet.on_write, reports=reports)


@pytest.mark.parametrize(
    ("unhealthy_s", "healthy_s", "came", "went"),
    [
        (2.0, 3.0, Status.HELD, Status.HELD),
        (11.0, 3.0, Status.BROKEN, Status.HELD),
        (None, None, Status.BROKEN, Status.UNKNOWN),
        (2.0, None, Status.HELD, Status.BROKEN),
    ],
    ids=["in time", "too late", "never", "it stays"],
)
def test_a_pods_device_must_become_unhealthy_and_well_again(
    unhealthy_s: float | None, healthy_s: float | None, came: Status, went: Status, reports: Path
) -> None:
    run = played(Kubelet(unhealthy_s, healthy_s), reports)
    assert (run.status("resource-unhealthy"), run.status("resource-healthy")) == (came, went)
    assert run.cluster.left() == []


def test_every_change_is_in_the_history_with_its_place(reports: Path) -> None:
    run = played(Kubelet(2.0, 3.0), reports)
    seen = [(one.node, one.place, one.value) for one in run.history.of(SignSeen)]
    assert seen == [(NODE, PLACE, health) for health in ("Healthy", "Unhealthy", "Healthy")]
    assert run.outcome is RunOutcome.PASSED


def test_another_resource_shows_nothing(reports: Path) -> None:
    run = played(Kubelet(2.0, 3.0), reports, resource="nvidia.com/gpu")
    assert run.status("resource-unhealthy") is Status.BROKEN
    assert run.history.of(SignSeen) == []


def test_a_device_that_is_unhealthy_before_the_fault_is_refused(reports: Path) -> None:
    run = played(Kubelet(None, None, at_first="Unhealthy"), reports)
    refused = run.history.last(Refused)
    assert refused is not None
    assert f"{PLACE} is already Unhealthy" in refused.why
