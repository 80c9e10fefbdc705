"""Our shell script in a pod of a foreign image: a real process at the virtual node's kernel log."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from gameday.host.shell_writer import PCI_PLACE, parse_output, writer_command
from gameday.host.virtual import VirtualHost
from gameday_rehearsal.nodes.containers import RealProcess, start_container
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.sandbox import Sandbox
from tests.rehearsal.nodes.conftest import Cluster

XID = f"<3>kernel: NVRM: Xid (PCI:{PCI_PLACE}): 43, pid='<unknown>', name=<unknown>, $(touch /tmp/no) `id` %s \\n"


def writer(name: str, node: str, records: list[str], **spec: Any) -> dict[str, Any]:
    container = {"name": "writer", "image": "registry.example/any:1", "command": writer_command("<6>mark 1", records)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": node, "restartPolicy": "Never", "containers": [container], **spec},
    }


def test_its_records_are_in_the_nodes_log_as_they_are_and_are_read_back(cluster: Cluster) -> None:
    cluster.create(writer("writes", "gpu-node-2", [XID]))
    cluster.phase("writes", "Succeeded")
    written = parse_output(cluster.http.get("/api/v1/namespaces/default/pods/writes/log").text)
    assert written.gpu == "0000:1b:00"
    assert written.wrote == (XID.replace(PCI_PLACE, "0000:1b:00"),)
    assert not written.missing
    line = written.wrote[0].removeprefix("<3>")
    assert sum(found.endswith(line) for found in VirtualHost(cluster.host("gpu-node-2")).read_kernel_log()) == 1
    assert not any(found.endswith(line) for found in VirtualHost(cluster.host("gpu-node-1")).read_kernel_log())
    cluster.delete("writes")


def test_a_script_of_somebody_else_is_only_a_timer(cluster: Cluster, tmp_path: Path) -> None:
    pod = writer("foreign", "gpu-node-1", [XID])
    pod["spec"]["containers"][0]["command"] = ["/bin/sh", "-c", f"touch {tmp_path}/done; sleep 0.1"]
    cluster.create(pod)
    cluster.phase("foreign", "Succeeded")
    assert not (tmp_path / "done").exists()
    cluster.delete("foreign")


async def test_a_node_that_lets_nobody_write_says_so(machine: Machine, tmp_path: Path) -> None:
    machine.log.devkmsg = "off"
    pod = writer("w", machine.name, [XID])
    pod["metadata"] |= {"uid": "u", "namespace": "default"}
    with pytest.raises(OSError, match="printk_devkmsg is off"):
        await start_container(pod, pod["spec"]["containers"][0], Sandbox(tmp_path, pod), 0, {}, machine)


async def test_it_ends_with_its_pod_in_the_middle_of_reading(machine: Machine, tmp_path: Path) -> None:
    pod = writer("w", machine.name, [XID])
    pod["metadata"] |= {"uid": "u", "namespace": "default"}
    container = pod["spec"]["containers"][0]
    process = await start_container(pod, container, Sandbox(tmp_path, pod), 0, {}, machine)
    assert isinstance(process, RealProcess)
    while not any("Xid" in record.text for record in machine.log.records()):
        await asyncio.sleep(0.01)
    process.terminate()
    assert await process.wait() == 128 + 15
