"""The DRA driver of a virtual node: its slice, the taints of broken GPUs, and the claims of pods."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any, cast

import pytest

from gameday.errors import ClaimError
from gameday.plan.rehearsal import DraXidEffect
from gameday.xid.lines import format_xid
from gameday_rehearsal.nodes.dcgm import DcgmCache
from gameday_rehearsal.nodes.devices import GpuDevices, GpuHolder
from gameday_rehearsal.nodes.dra import (
    DRIVER,
    SLICES,
    DraDriver,
    PreparedGpu,
    claims_of,
    container_of,
    devices_for,
)
from gameday_rehearsal.nodes.gpus import GpuFleet
from gameday_rehearsal.nodes.kernel_log import KernelRecord
from gameday_rehearsal.nodes.machine import Machine
from kubesim.client import ApiClient
from kubesim.errors import ApiError

Json = dict[str, Any]
NODE = "gpu-node-1"
POD: Json = {
    "metadata": {"name": "p", "namespace": "ns", "uid": "pod-1"},
    "spec": {
        "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "one"}],
        "containers": [
            {"name": "sidecar"},
            {"name": "trainer", "resources": {"claims": [{"name": "gpus"}]}},
        ],
    },
    "status": {"resourceClaimStatuses": [{"name": "gpus", "resourceClaimName": "p-gpus-x"}]},
}
CLAIM: Json = {
    "metadata": {
        "name": "p-gpus-x",
        "namespace": "ns",
        "ownerReferences": [{"kind": "Pod", "uid": "pod-1", "controller": True}],
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {"request": "gpus", "driver": DRIVER, "pool": NODE, "device": "gpu-3"},
                    {"request": "nic", "driver": "nic.example.com", "pool": "fabric", "device": "nic-0"},
                ]
            }
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "pod-1"}],
    },
}


class SliceServer:
    """An API server with one slice at most, and one claim."""

    def __init__(self) -> None:
        self.slice: Json | None = None
        self.writes = 0
        self.claim = CLAIM

    async def post(self, path: str, body: Json) -> Json:
        assert path == SLICES
        if self.slice is not None:
            raise ApiError(409, "AlreadyExists", "there")
        return await self.put(path, body)

    async def put(self, path: str, body: Json) -> Json:
        self.writes += 1
        self.slice = deepcopy(body)
        self.slice["metadata"]["resourceVersion"] = str(self.writes)
        return self.slice

    async def get(self, path: str) -> Json:
        if "resourceclaims" in path:
            assert path.endswith("/namespaces/ns/resourceclaims/p-gpus-x")
            return self.claim
        assert self.slice is not None
        return deepcopy(self.slice)

    @property
    def devices(self) -> list[Json]:
        assert self.slice is not None
        return cast("list[Json]", self.slice["spec"]["devices"])

    def taints(self) -> dict[str, list[tuple[str, str, str]]]:
        return {
            one["name"]: [(taint["key"], taint["value"], taint["effect"]) for taint in one["taints"]]
            for one in self.devices
            if "taints" in one
        }


class Node:
    """A machine of eight GPUs with a driver, which hears what the machine's listener would."""

    def __init__(self, runner: asyncio.Runner, effect: DraXidEffect = DraXidEffect.NO_SCHEDULE) -> None:
        self._runner = runner
        self.server = SliceServer()
        fleet = GpuFleet([NODE], 8)
        self.machine = Machine(0, NODE, fleet, DcgmCache(fleet), lambda *_: None, boot_s=0.01)
        self.driver = DraDriver(self.machine, cast("ApiClient", self.server), self._may_write, effect)

    async def _may_write(self) -> None:
        return

    def log(self, text: str) -> None:
        self.driver.logged(KernelRecord(1.0, 0, 1, 4, text))

    def xid(self, code: int, gpu: int = 3) -> None:
        self.log(format_xid(code, self.machine.gpus[gpu].pci))

    def published(self, *changes: Callable[[], None]) -> SliceServer:
        """The server after each of the changes was published, one after the other."""

        async def play() -> None:
            keeping = asyncio.create_task(self.driver.keep_published())
            for change in changes:
                change()
                for _ in range(20):
                    await asyncio.sleep(0)
            assert not keeping.done()
            keeping.cancel()

        self._runner.run(play())
        return self.server

    def register(self) -> None:
        self.driver.node_registered("node-uid")


@pytest.fixture
def node() -> Iterator[Node]:
    with asyncio.Runner() as runner:
        yield Node(runner)


def test_a_node_publishes_its_gpus_with_their_numa_nodes_and_goes_with_its_owner(node: Node) -> None:
    server = node.published(node.register)
    assert server.slice is not None
    spec = server.slice["spec"]
    assert (spec["driver"], spec["nodeName"]) == (DRIVER, NODE)
    assert spec["pool"] == {"name": NODE, "generation": 1, "resourceSliceCount": 1}
    assert server.slice["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
    numa = [one["attributes"]["resource.kubernetes.io/numaNode"]["int"] for one in server.devices]
    assert numa == [0, 0, 0, 0, 1, 1, 1, 1]


def test_attributes_keep_the_limits_of_the_api(node: Node) -> None:
    """32 attributes and capacities a device, 64 characters a value, versions as semver (resource/v1/types.go)."""
    for one in node.published(node.register).devices:
        assert len(one["attributes"]) + len(one["capacity"]) <= 32
        assert all(len(str(value)) <= 64 for found in one["attributes"].values() for value in found.values())
        versions = [found["version"] for found in one["attributes"].values() if "version" in found]
        assert "550.163.1" in versions
        assert all(str(int(part)) == part for version in versions for part in version.split("."))


def test_an_xid_taints_its_device_alone_and_starts_no_new_generation(node: Node) -> None:
    server = node.published(node.register, lambda: node.xid(79))
    assert server.taints() == {"gpu-3": [(f"{DRIVER}/xid", "79", "NoSchedule")]}
    assert server.slice is not None
    assert server.slice["spec"]["pool"]["generation"] == 1


def test_the_effect_of_an_xid_may_be_what_an_administrator_makes_of_it() -> None:
    with asyncio.Runner() as runner:
        other = Node(runner, DraXidEffect.NO_EXECUTE)
        assert other.published(other.register, lambda: other.xid(79)).taints()["gpu-3"][0][2] == "NoExecute"


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68, 109])
def test_an_applications_xid_taints_nothing(node: Node, code: int) -> None:
    assert node.published(node.register, lambda: node.xid(code)).taints() == {}


def test_a_line_about_somebody_elses_gpu_taints_nothing(node: Node) -> None:
    strange = format_xid(79, "0000:ff:00")
    assert node.published(node.register, lambda: node.log(strange)).taints() == {}


def test_a_reset_or_a_boot_takes_the_taint_away(node: Node) -> None:
    reset = f"gameday-agent: GPU reset executed: PCI:{node.machine.gpus[3].pci}, success: true"
    failed = reset.replace("true", "false")
    assert node.published(node.register, lambda: node.xid(79), lambda: node.log(failed)).taints()
    assert node.published(lambda: node.log(reset)).taints() == {}
    assert node.published(lambda: node.xid(79)).taints()
    assert node.published(node.driver.restarted).taints() == {}


def test_a_lost_gpu_is_tainted_and_a_removed_one_leaves_with_a_new_generation(node: Node) -> None:
    def lose() -> None:
        node.machine.lose_gpu(2)
        node.driver.gpus_changed()

    def remove() -> None:
        node.machine.pci_remove(5)
        node.driver.gpus_changed()

    node.machine.units["nvidia-persistenced"] = False
    assert node.published(node.register, lose).taints() == {"gpu-2": [(f"{DRIVER}/gpu-lost", "", "NoSchedule")]}
    server = node.published(remove)
    assert "gpu-5" not in [one["name"] for one in server.devices]
    assert server.slice is not None
    assert server.slice["spec"]["pool"]["generation"] == 2


def test_what_somebody_wrote_over_or_removed_is_published_again(node: Node) -> None:
    server = node.published(node.register)
    assert server.slice is not None
    own, spoilt = server.slice, deepcopy(server.slice)
    spoilt["spec"]["devices"] = spoilt["spec"]["devices"][:1]
    node.published(lambda: node.driver.slice_changed(own))
    assert server.writes == 1
    server.slice = spoilt
    node.published(lambda: node.driver.slice_changed(spoilt))
    assert len(server.devices) == 8
    server.slice = None
    node.published(lambda: node.driver.slice_changed(None))
    assert len(server.devices) == 8


def test_a_pods_gpus_are_those_of_its_claim(node: Node) -> None:
    assert asyncio.run(node.driver.prepare(POD)) == [PreparedGpu("trainer", "claim:gpus", 3)]


def test_a_claim_for_a_gpu_that_is_lost_is_not_prepared(node: Node) -> None:
    node.machine.fleet.lost[0, 3] = True
    with pytest.raises(ClaimError, match="has no device gpu-3 that works"):
        asyncio.run(node.driver.prepare(POD))


def changed(**status: object) -> Json:
    return {**CLAIM, "status": {**CLAIM["status"], **status}}


@pytest.mark.parametrize(
    ("claim", "why"),
    [
        ({**CLAIM, "status": {}}, "is not allocated yet"),
        (changed(reservedFor=[{"uid": "another"}]), "it is not in reservedFor"),
        (
            {**CLAIM, "metadata": {**CLAIM["metadata"], "ownerReferences": [{"uid": "x", "controller": True}]}},
            "another",
        ),
    ],
)
def test_a_claim_that_is_not_the_pods_is_refused(claim: Json, why: str) -> None:
    with pytest.raises(ClaimError, match=why):
        devices_for(claim, POD, NODE)


def test_a_device_of_another_node_is_refused() -> None:
    with pytest.raises(ClaimError, match="of pool gpu-node-1, not of gpu-node-2"):
        devices_for(CLAIM, POD, "gpu-node-2")


def test_a_template_whose_claim_is_not_made_yet_is_waited_for() -> None:
    with pytest.raises(ClaimError, match="not created yet"):
        list(claims_of({**POD, "status": {}}))
    nothing_needed = {"resourceClaimStatuses": [{"name": "gpus"}]}
    assert list(claims_of({**POD, "status": nothing_needed})) == []


def test_a_container_gets_only_the_request_that_it_names() -> None:
    pod = deepcopy(POD)
    pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpus", "request": "small"}]}
    assert container_of(pod, "gpus", "small") == ("sidecar", "claim:gpus/small")
    assert container_of(pod, "gpus", "large") == ("trainer", "claim:gpus")
    assert container_of(pod, "other", "large") is None


def test_a_gpu_that_is_still_held_is_not_given_to_another_pod() -> None:
    devices = GpuDevices(8, lambda gpu: True, lambda gpu, holder: None)
    first, second = (GpuHolder(uid, "ns", uid, "c") for uid in ("first", "second"))
    devices.allocate([(first, 1)])
    with pytest.raises(ClaimError, match="GPU 0 is still with pod ns/first"):
        devices.give([(second, [1, 0])])
    assert devices.held_by("second") == []
    devices.give([(second, [1, 7])])
    assert devices.held_by("second") == [1, 7]
