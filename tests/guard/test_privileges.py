"""Every fault states what its pod needs of the node, and the pod is given that and no more."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from gameday.agent.security import security_of
from gameday.agent.task import AllReduceTask, CanaryTask, InjectTask, MarkTask, UndoTask
from gameday.cluster.manifests import agent_pod
from gameday.faults.base import Layer
from gameday.faults.registry import known_faults
from gameday.host.privileges import DAEMONS, GPU_PROGRAMS, GPU_WORK, KERNEL_LOG, UNSTATED, PodSecurity, combined
from gameday.plan.catalogue import shipped_plans
from gameday.values.measures import Backend, Measure
from tests.guard.observations import profile
from tests.support.plans import shipped

FAULTS = sorted(known_faults().items())


def injector(name: str) -> dict[str, Any]:
    """The injector's pod for a shipped plan's fault."""
    fault = shipped()[name].fault.model_dump(mode="json")
    task = InjectTask(run_id="r", node="n", gpu=0, fault=fault, hold_s=1)
    return pod_of(security_of(task))


def pod_of(security: PodSecurity) -> dict[str, Any]:
    spec: dict[str, Any] = agent_pod(
        "p",
        task="{}",
        role="inject",
        run_id="r",
        node="n",
        profile=profile(),
        deadline=timedelta(seconds=1),
        security=security,
    )["spec"]
    return spec


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[name for name, _ in FAULTS])
def test_every_fault_states_its_pods_rights(name: str, fault: Any) -> None:
    assert fault.layer is Layer.SEVERAL or fault.security is not UNSTATED


@pytest.mark.parametrize(("name", "fault"), FAULTS, ids=[name for name, _ in FAULTS])
def test_no_fault_asks_for_capabilities_beside_all_of_them(name: str, fault: Any) -> None:
    assert not (fault.security.privileged and fault.security.capabilities)


@pytest.mark.parametrize("name", list(shipped_plans()))
def test_an_injectors_pod_is_given_what_its_fault_states(name: str) -> None:
    fault = shipped()[name].fault
    wanted = security_of(InjectTask(run_id="r", node="n", gpu=0, fault=fault.model_dump(mode="json"), hold_s=1))
    spec = injector(name)
    context = spec["containers"][0]["securityContext"]
    assert spec["hostPID"] is wanted.host_pid
    assert context.get("privileged", False) is wanted.privileged
    assert set(context.get("capabilities", {}).get("add", [])) == set(wanted.capabilities)


def test_the_agent_is_root_whatever_its_image_says() -> None:
    """Without being root, a privileged container holds its capabilities for nobody and may not open /dev/kmsg."""
    assert {injector(name)["containers"][0]["securityContext"]["runAsUser"] for name in shipped()} == {0}


def test_only_a_pod_that_may_open_every_gpu_asks_nvidias_runtime_for_them() -> None:
    def asks(name: str) -> bool:
        return any(one["name"] == "NVIDIA_VISIBLE_DEVICES" for one in injector(name)["containers"][0]["env"])

    assert asks("power-cap")
    assert not asks("dcgm-pause")


def test_what_speaks_to_a_daemon_only_is_not_privileged() -> None:
    context = injector("dcgm-pause")["containers"][0]["securityContext"]
    assert "privileged" not in context
    assert context["capabilities"]["drop"] == ["ALL"]
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_a_line_in_the_kernel_log_needs_no_sight_of_the_hosts_processes() -> None:
    assert injector("xid-95-uncontained-ecc")["hostPID"] is False


def test_the_marker_is_given_what_a_kernel_log_line_needs() -> None:
    assert security_of(MarkTask(run_id="r", node="n", marker="marker-12")) == KERNEL_LOG


def test_who_only_undoes_is_given_what_the_injector_was() -> None:
    fault = shipped()["dcgm-pause"].fault.model_dump(mode="json")
    assert security_of(UndoTask(run_id="r", node="n", gpu=0, fault=fault)) == DAEMONS


PINGS = security_of(CanaryTask(run_id="r", node="n", measure=Measure.ROUND_TRIP, interface="ib0"))


@pytest.mark.parametrize(
    ("measure", "wanted"),
    [
        (Measure.ALL_REDUCE, GPU_PROGRAMS),
        (Measure.COPY, GPU_WORK),
        (Measure.LARGEST_BLOCK, GPU_WORK),
        (Measure.ROUND_TRIP, PINGS),
        (Measure.ANSWERED, PINGS),
    ],
)
def test_a_canary_is_given_what_its_measure_needs(measure: Measure, wanted: PodSecurity) -> None:
    assert security_of(CanaryTask(run_id="r", node="n", measure=measure, interface="ib0")) == wanted


def test_a_canary_that_pings_is_not_privileged() -> None:
    assert not PINGS.privileged
    assert set(PINGS.capabilities) == {*DAEMONS.capabilities, "NET_RAW"}


def test_parts_together_need_what_each_of_them_does() -> None:
    both = combined([DAEMONS, KERNEL_LOG])
    assert (both.privileged, both.host_pid, both.capabilities) == (True, True, ())
    assert DAEMONS.why in both.why
    assert KERNEL_LOG.why in both.why


@pytest.fixture
def elsewhere() -> Iterator[int]:
    """The id of a process in other namespaces than those a test enters it from."""
    process = subprocess.Popen(["sleep", "60"])
    yield process.pid
    process.kill()
    process.wait()


@pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare", "nsenter"))), reason="root")
@pytest.mark.parametrize("missing", [None, *DAEMONS.capabilities])
def test_the_kernel_asks_for_exactly_these_capabilities_to_enter_the_host(elsewhere: int, missing: str | None) -> None:
    kept = "".join(f",+{name.lower()}" for name in DAEMONS.capabilities if name != missing)
    apart = ["unshare", "--mount", "--uts", "--ipc", "--net", "--"]
    limited = ["setpriv", "--inh-caps", "-all", "--bounding-set", f"-all{kept}", "--"]
    enter = ["nsenter", "--target", str(elsewhere), "--mount", "--uts", "--ipc", "--net", "--pid", "--", "true"]
    if missing is None and subprocess.run([*apart, *enter], check=False, capture_output=True).returncode:
        pytest.skip("this machine lets nobody enter another process's namespaces")
    done = subprocess.run([*apart, *limited, *enter], check=False, capture_output=True)
    assert (done.returncode == 0) is (missing is None), done.stderr


# What ping asks of the kernel for `-I interface`: a raw socket, bound to the device. In a network namespace of its own,
# so that an unprivileged ping's ICMP sockets, where this machine allows them, do not hide what is missing.
_PING = """
import socket
with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP) as sent:
    sent.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
"""


@pytest.mark.skipif(os.geteuid() != 0 or not all(map(shutil.which, ("setpriv", "unshare"))), reason="root")
@pytest.mark.parametrize("missing", [None, "NET_RAW"])
def test_the_kernel_lets_a_canary_ping_with_exactly_these_capabilities(missing: str | None) -> None:
    kept = "".join(f",+{name.lower()}" for name in PINGS.capabilities if name != missing)
    limited = ["setpriv", "--inh-caps", "-all", "--bounding-set", f"-all{kept}", "--"]
    command = ["unshare", "--net", "--", *limited, sys.executable, "-c", _PING]
    if subprocess.run(["unshare", "--net", "true"], check=False, capture_output=True).returncode:
        pytest.skip("this machine makes no network namespaces")
    done = subprocess.run(command, check=False, capture_output=True)
    assert (done.returncode == 0) is (missing is None), done.stderr


def test_an_all_reduce_enters_the_hosts_network_and_opens_no_device() -> None:
    nodes = ("n", "m")
    task = AllReduceTask(run_id="r", node="n", rank=0, nodes=nodes, interface="ib0", secret="of this test, long enough")
    rights = security_of(task)
    assert (rights.privileged, rights.host_pid) == (False, True)
    assert rights.capabilities == ("SYS_ADMIN", "SYS_PTRACE", "NET_RAW")
    by_nccl = security_of(task.model_copy(update={"backend": Backend.NCCL}))
    assert (by_nccl.privileged, by_nccl.host_pid) == (True, True)
