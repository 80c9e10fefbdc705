"""The GPU operator's ways as a node has them: what containers get, and which of its pods keep GPUs open."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.agent.security import security_of
from gameday.agent.task import CanaryTask, Proof, QaTask
from gameday.cluster.manifests import agent_pod
from gameday.cluster.profile import ClusterProfile
from gameday.errors import HostError
from gameday.faults.component_pods import Component
from gameday.host.virtual import VirtualHost
from gameday.plan.qa import QaFloors
from gameday.values.measures import Measure
from gameday_rehearsal.nodes.gpu_operator import (
    AWAY_AT_FIRST,
    GpuOperator,
    container_environment,
    deploy_labels,
    operand_of,
)
from gameday_rehearsal.nodes.machine import EXPORTER, Machine
from tests.guard.observations import SERVER

PROOF = Proof(floors=QaFloors(), burn_in_s=None, virtual_burn_in_s=1)
QA = QaTask(run_id="r", node="a", marker="quick-0001", proof=PROOF)
CANARY = CanaryTask(run_id="r", node="a", measure=Measure.COPY, gpus=2)
NO_DRIVER = {"GAMEDAY_VIRTUAL_NO_DRIVER": "true"}


def sent(task: QaTask | CanaryTask, runtime_class: str | None) -> dict[str, Any]:
    """Return the pod that we send for a task, as admission stores it."""
    profile = ClusterProfile(prometheus=SERVER, alertmanager=SERVER, loki=SERVER, agent_runtime_class=runtime_class)
    gpus = task.gpus if isinstance(task, CanaryTask) else 0
    return agent_pod(
        "gd-r-p",
        task=task.model_dump_json(),
        role=task.role,
        run_id="r",
        node="a",
        profile=profile,
        deadline=timedelta(minutes=1),
        security=security_of(task),
        gpus=gpus,
    )


@pytest.mark.parametrize(
    ("operator", "visible"),
    [
        (GpuOperator.NONE, "uuid"),
        (GpuOperator.RUNTIME_CLASS, "uuid"),
        (GpuOperator.INDEX, "1,3"),
        (GpuOperator.CDI, "void"),
        (GpuOperator.NRI, "void"),
    ],
)
def test_a_pod_with_gpus_is_told_of_them_as_the_device_plugin_does(operator, visible, machine: Machine) -> None:
    held = [machine.gpus[1], machine.gpus[3]]
    expected = ",".join(gpu.uuid for gpu in held) if visible == "uuid" else visible
    assert container_environment(operator, sent(CANARY, None), "agent", held) == {"NVIDIA_VISIBLE_DEVICES": expected}


@pytest.mark.parametrize(
    ("operator", "runtime_class", "driver"),
    [
        (GpuOperator.NONE, None, True),
        (GpuOperator.RUNTIME_CLASS, "nvidia", True),
        (GpuOperator.RUNTIME_CLASS, None, False),
        (GpuOperator.INDEX, "nvidia", True),
        (GpuOperator.CDI, "nvidia", True),
        (GpuOperator.CDI, None, False),
        (GpuOperator.NRI, None, True),
    ],
)
def test_a_pod_of_ours_without_gpus_has_the_driver_where_it_asks_as_the_operator_wants(
    operator, runtime_class, driver
) -> None:
    found = container_environment(operator, sent(QA, runtime_class), "agent", ())
    assert found == ({} if driver else NO_DRIVER)


def test_under_nri_a_pod_without_the_annotation_has_no_driver() -> None:
    pod = sent(QA, None)
    del pod["metadata"]["annotations"]
    assert container_environment(GpuOperator.NRI, pod, "agent", ()) == NO_DRIVER


@pytest.mark.parametrize("call", ["gpus", "gpu_users", "measure_load"])
def test_without_the_driver_nothing_of_nvml_and_cuda_answers(call: str) -> None:
    host = VirtualHost("http://127.0.0.1:9/hosts/a", NO_DRIVER)
    arguments = {"gpus": (), "gpu_users": (0,), "measure_load": (0, 1.0)}[call]
    with pytest.raises(HostError, match=r"NVML not found: .*agent_runtime_class"):
        getattr(host, call)(*arguments)


def test_an_operands_pod_is_known_by_its_label() -> None:
    plugin = {"metadata": {"labels": {"app": "nvidia-device-plugin-daemonset"}}}
    assert operand_of(plugin) == ("nvidia-device-plugin", Component.DEVICE_PLUGIN)
    assert operand_of({"metadata": {"labels": {"app": "pretrain"}}}) is None
    assert set(deploy_labels().values()) == {"true"}


def test_an_exporter_whose_pod_or_host_engine_is_away_answers_nothing(machine: Machine) -> None:
    exporting = machine.cache.exporting
    machine.set_away(AWAY_AT_FIRST)
    assert not exporting[machine.index]
    machine.set_away({Component.HOST_ENGINE})
    machine.set_unit(EXPORTER, active=True)
    assert not exporting[machine.index]
    machine.set_away(())
    assert exporting[machine.index]
