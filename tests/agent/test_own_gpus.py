"""A container knows its GPUs in each of the ways that clusters have, and says so where none of them tells."""

from __future__ import annotations

import pytest

from gameday.agent.own_gpus import own_gpus
from gameday.errors import HostError
from tests.host.fake import FakeHost, healthy_gpu

FOUR = tuple(f"GPU-{number}1111111-aaaa-bbbb-cccc-000000000000" for number in range(4))
MIG = "MIG-5c89852c-d268-c3f3-1b07-005d5ae1dc3f"
API = "the kubelet's pod-resources API"


@pytest.fixture
def host() -> FakeHost:
    """A node of four GPUs whose kubelet gave the last two to our pod."""
    host = FakeHost()
    host.samples = [healthy_gpu(index, uuid=uuid) for index, uuid in enumerate(FOUR)]
    host.pods["gameday/canary"] = FOUR[2:]
    return host


@pytest.mark.parametrize(
    ("value", "asked", "uuids", "way"),
    [
        (",".join(FOUR[:2]), 2, FOUR[:2], "NVIDIA_VISIBLE_DEVICES"),
        (MIG, 1, (MIG,), "NVIDIA_VISIBLE_DEVICES"),
        (FOUR[0], 2, FOUR[:1], "NVIDIA_VISIBLE_DEVICES"),  # two shares of one GPU
        ("3,0", 2, (FOUR[3], FOUR[0]), "NVIDIA_VISIBLE_DEVICES"),
        ("void", 2, FOUR[2:], API),
        ("", 2, FOUR[2:], API),
        ("all", 2, FOUR[2:], API),
        ("/var/run/nvidia-container-devices", 2, FOUR[2:], API),
        ("0,7", 2, FOUR[2:], API),
        (",".join(FOUR), 2, FOUR[2:], API),  # a runtime that shows more than the pod was given
    ],
)
def test_each_way_tells_which_gpus_are_its_own(host, value, asked, uuids, way) -> None:
    found = own_gpus(host, {"NVIDIA_VISIBLE_DEVICES": value, "GAMEDAY_POD": "gameday/canary"}, asked)
    assert (found.uuids, found.way) == (uuids, way)


def test_a_pod_that_asked_for_all_visible_gpus_has_them(host) -> None:
    host.refuse["pod_gpus"] = "kubelet.sock does not answer"
    found = own_gpus(host, {"NVIDIA_VISIBLE_DEVICES": "void", "GAMEDAY_POD": "gameday/canary"}, 4)
    assert (found.uuids, found.way) == (FOUR, "NVML")


def test_without_any_way_the_refusal_names_each_of_them(host) -> None:
    host.refuse = {"pod_gpus": "kubelet.sock does not answer"}
    with pytest.raises(HostError) as refused:
        own_gpus(host, {"NVIDIA_VISIBLE_DEVICES": "void", "GAMEDAY_POD": "gameday/canary"}, 2)
    assert str(refused.value) == (
        "no way says which GPUs this pod holds: NVIDIA_VISIBLE_DEVICES: it is 'void'; "
        "the kubelet's pod-resources API: kubelet.sock does not answer; "
        "NVML shows 4 GPU(s), and the pod asked for 2"
    )


def test_a_pod_that_does_not_know_its_name_cannot_ask_the_kubelet(host) -> None:
    with pytest.raises(HostError, match="GAMEDAY_POD does not name this pod"):
        own_gpus(host, {}, 2)
