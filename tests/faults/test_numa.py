"""The far NUMA node: its rate, and machines without one."""

from __future__ import annotations

import pytest

from gameday.errors import HostError
from gameday.faults.gpu_burn import GpuBurnFault
from gameday.faults.gpu_memory import GpuMemoryFault
from gameday.faults.numa import NumaFault, NumaParameters
from tests.faults.gpu_model import ModelHost

BURN, MEMORY, NUMA = GpuBurnFault(), GpuMemoryFault(), NumaFault()


def test_the_far_node_is_slower_and_the_ratio_is_in_the_evidence(host: ModelHost) -> None:
    evidence = NUMA.inject(NumaParameters(), 3, host)
    assert evidence.lines[0] == "GPU 3 is at NUMA node 1, CPUs 56-111,168-223; NVML agrees"
    assert evidence.lines[2].endswith("from node 0 (distance 21), CPUs 0-55,112-167; every page on that node")
    assert evidence.lines[3] == "far/near = 0.62"


def test_an_nvml_that_disagrees_is_in_the_evidence(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    samples = [sample.model_copy(update={"cpu_affinity": "0-7"}) for sample in host.gpus()]
    monkeypatch.setattr(host, "gpus", lambda: samples)
    assert NUMA.inject(NumaParameters(), 3, host).lines[0].endswith("NVML says 0-7")


@pytest.mark.parametrize(
    ("path", "content", "message"),
    [
        ("/sys/bus/pci/devices/0000:52:00.0/numa_node", "-1\n", "the firmware does not report"),
        ("/sys/devices/system/node/online", "1\n", "there is no far node"),
        ("/sys/devices/system/node/node0/cpulist", "\n", "there is no far node"),
        ("/sys/devices/system/node/node1/distance", "nonsense\n", "cannot make sense of"),
    ],
)
def test_a_machine_without_a_far_side_is_refused(
    host: ModelHost, monkeypatch: pytest.MonkeyPatch, path: str, content: str, message: str
) -> None:
    read = host.read_file
    alone = "10\n" if path.endswith("online") else None

    def changed(asked: str) -> str:
        if alone and asked.endswith("distance"):
            return alone
        return content if asked == path else read(asked)

    monkeypatch.setattr(host, "read_file", changed)
    with pytest.raises(HostError, match=message):
        NUMA.prior_state(NumaParameters(), 2, host)


def test_a_far_node_that_is_the_near_one_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"node 1 is not one with CPUs that is far from GPU 3; those are \[0\]"):
        NUMA.prior_state(NumaParameters(far_node=1), 3, host)


def test_a_copy_from_memory_of_another_node_is_no_proof(host: ModelHost, monkeypatch: pytest.MonkeyPatch) -> None:
    start = host.start_work
    monkeypatch.setattr(
        host, "start_work", lambda gpu, order: start(gpu, order).model_copy(update={"memory_node": None})
    )
    with pytest.raises(HostError, match="not bound to NUMA node 1"):
        NUMA.inject(NumaParameters(), 3, host)
