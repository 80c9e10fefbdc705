"""A component's pod is found, frozen, read back and thawed; whatever else is asked for is refused."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace

import pytest

from gameday.errors import HostError
from gameday.faults.component_frozen import ComponentFrozenFault, ComponentFrozenParameters
from gameday.faults.component_pods import LABELS, MAY_FREEZE, Component, cgroup_of, component_of, find_pod
from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.components import Sandbox
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

FAULT = ComponentFrozenFault()
EXPORTER = ComponentFrozenParameters(component=Component.EXPORTER)
POD = Sandbox("1a-2b", "gpu-operator", "exporter-x", {"app": "nvidia-dcgm-exporter"}, burstable=True)


def host_with(*pods: Sandbox) -> ModelHost:
    host = ModelHost()
    host.machine.components.sandboxes = lambda: pods
    return host


def test_the_pod_is_frozen_read_back_and_thawed_by_another_process() -> None:
    host = host_with(POD)
    evidence = FAULT.inject(EXPORTER, 0, host)
    assert evidence.lines[0].startswith("before: pod gpu-operator/exporter-x (dcgm-exporter) not frozen")
    assert evidence.lines[2] == "after: cgroup.events says frozen 1"
    assert host.machine.components.frozen_pods() == ["gpu-operator/exporter-x"]
    for state in (evidence.undo_state, {}, {}):
        FAULT.undo(EXPORTER, 0, host, state)
        assert FAULT.verify_undone(EXPORTER, 0, host, state)
    assert host.machine.components.frozen_pods() == []
    assert {argv[2:4] for argv in host.ran if argv[0] == "crictl"} == {("-o", "json")}, "before any ID"


def test_a_frozen_exporter_answers_no_scrape_until_it_is_thawed() -> None:
    host = host_with(POD)
    state = FAULT.inject(EXPORTER, 0, host).undo_state
    assert not host.machine.cache.exporting[0]
    FAULT.undo(EXPORTER, 0, host, state)
    assert host.machine.cache.exporting[0]


def test_a_frozen_host_engine_keeps_dcgmi_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    host = host_with(replace(POD, labels={"app": "nvidia-dcgm"}))
    FAULT.inject(ComponentFrozenParameters(component=Component.HOST_ENGINE), 0, host)
    with pytest.raises(HostError, match="did not end within"):
        host.run(["dcgmi", "modules", "-l"], 0.05)


@pytest.mark.parametrize(
    ("component", "labels", "restamped"),
    [
        (Component.SHIPPER, {"app.kubernetes.io/name": "dmesg"}, True),
        (Component.COLLECTOR, {"app.kubernetes.io/name": "promtail"}, False),
    ],
)
def test_lines_wait_for_a_frozen_log_path_and_come_late(
    component: Component, labels: dict[str, str], restamped: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, shipped = host_with(replace(POD, labels=labels)), []
    monkeypatch.setattr(host.machine, "_ship", lambda _, record: shipped.append(record))
    parameters = ComponentFrozenParameters(component=component)
    state = FAULT.inject(parameters, 0, host).undo_state
    host.write_kernel_log("<3>a line")
    assert shipped == []
    (written,) = [record for record in host.machine.log.records() if record.text == "a line"]
    FAULT.undo(parameters, 0, host, state)
    assert [record.text for record in shipped] == ["a line"]
    assert (shipped[0].wall_ns > written.wall_ns) is restamped


def test_the_log_stores_process_is_held_and_let_go() -> None:
    host, held = host_with(replace(POD, labels={"app.kubernetes.io/name": "loki"})), []
    host.machine.hold_log_store = held.append
    parameters = ComponentFrozenParameters(component=Component.LOG_STORE)
    FAULT.undo(parameters, 0, host, FAULT.inject(parameters, 0, host).undo_state)
    assert held == [True, False]


@pytest.mark.parametrize(
    ("pods", "component", "message"),
    [
        ((), Component.EXPORTER, "no pod of the dcgm-exporter is ready on this node: none carries app="),
        ((POD,), Component.HOST_ENGINE, "no pod of the host-engine"),
        ((POD, replace(POD, uid="3", name="b")), Component.EXPORTER, "name one by its namespace"),
        (
            (replace(POD, labels={"gameday.dev/run": "x", MAY_FREEZE[0]: MAY_FREEZE[1]}),),
            Component.OTHER,
            "agent of a game-day",
        ),
        (
            (replace(POD, namespace="kube-system", labels={"tier": "control-plane", MAY_FREEZE[0]: MAY_FREEZE[1]}),),
            Component.OTHER,
            "control plane: that is never frozen",
        ),
        ((replace(POD, labels={"app": "training"}),), Component.OTHER, "gameday.dev/may-freeze=true"),
    ],
)
def test_a_pod_that_the_plan_does_not_single_out_is_refused(
    pods: tuple[Sandbox, ...], component: Component, message: str
) -> None:
    host = host_with(*pods)
    with pytest.raises(HostError, match=message):
        FAULT.prior_state(ComponentFrozenParameters(component=component), 0, host)
    assert host.machine.components.frozen_pods() == []


def test_only_the_log_store_is_dangerous() -> None:
    dangerous = [name for name in Component if ComponentFrozenParameters(component=name).dangers()]
    assert dangerous == [Component.LOG_STORE]


def test_who_could_see_it_depends_on_the_component() -> None:
    plugin = FAULT.reach(ComponentFrozenParameters(component=Component.DEVICE_PLUGIN)).seen_by
    assert any("allocatable" in line for line in plugin)
    assert not any("KernelLogPipelineSilent" in line for line in plugin)


def test_a_namespace_chooses_between_two_pods() -> None:
    other = replace(POD, uid="9-9", namespace="mine")
    assert find_pod(host_with(POD, other), Component.EXPORTER, "mine").uid == "9-9"


def test_one_that_is_frozen_already_is_not_ours_to_thaw() -> None:
    host = host_with(POD)
    host.write_file(f"{POD.cgroup}/cgroup.freeze", "1")
    with pytest.raises(HostError, match="frozen already"):
        FAULT.inject(EXPORTER, 0, host)


def test_a_kernel_that_takes_the_order_and_does_not_freeze_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.faults.component_frozen._SETTLES_WITHIN_S", 0.05)
    host = host_with(POD)
    host.ignore = {"cgroup.freeze"}
    with pytest.raises(HostError, match="does not say frozen"):
        FAULT.inject(EXPORTER, 0, host)


def test_a_pod_that_is_thawed_or_replaced_meanwhile_ends_the_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gameday.faults.component_frozen._LOOK_EVERY_S", 0.01)
    host = host_with(POD)
    state = FAULT.inject(EXPORTER, 0, host).undo_state
    host.machine.components.forget(POD.uid)
    host.machine.components.sandboxes = lambda: [replace(POD, uid="5-5")]
    with pytest.raises(HostError, match="runs again"):
        FAULT.hold(EXPORTER, 0, host, threading.Event())
    assert "gone" in FAULT.undo(EXPORTER, 0, host, state).lines[0]
    assert FAULT.verify_undone(EXPORTER, 0, host, state)


def test_the_hold_ends_when_it_is_asked_to() -> None:
    host, ended = host_with(POD), threading.Event()
    ended.set()
    assert FAULT.hold(EXPORTER, 0, host, ended) is None


def _crictl(cgroups_path: object) -> FakeHost:
    pod = {"id": "f00", "metadata": {"name": "x", "namespace": "n", "uid": "u"}, "labels": dict(LABELS_OF_EXPORTER)}

    class Host(FakeHost):
        def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
            answer = (
                {"items": [pod]}
                if argv[1] == "pods"
                else {"info": {"runtimeSpec": {"linux": {"cgroupsPath": cgroups_path}}}}
            )
            return result(argv, stdout=json.dumps(answer))

    return Host()


LABELS_OF_EXPORTER = (LABELS[Component.EXPORTER][0],)


@pytest.mark.parametrize(
    ("cgroups_path", "cgroup"),
    [
        (
            "kubepods-burstable-pod1_2.slice:cri-containerd:f00",
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice",
        ),
        ("kubepods-pod1_2.slice:crio:f00", "/kubepods.slice/kubepods-pod1_2.slice"),
        ("/kubepods/besteffort/pod1-2/f00", "/kubepods/besteffort/pod1-2"),
    ],
)
def test_the_cgroup_is_found_with_each_runtime_and_driver(cgroups_path: str, cgroup: str) -> None:
    host = _crictl(cgroups_path)
    assert cgroup_of(host, find_pod(host, Component.EXPORTER, None)) == cgroup


@pytest.mark.parametrize("cgroups_path", ["system.slice:cri-containerd:f00", "/init.scope/f00", "", None, 7])
def test_a_cgroup_that_is_no_pods_is_left_alone(cgroups_path: object) -> None:
    host = _crictl(cgroups_path)
    with pytest.raises(HostError, match=r"left alone|does not show the cgroup"):
        cgroup_of(host, find_pod(host, Component.EXPORTER, None))


@pytest.mark.parametrize(
    ("stdout", "exit_status", "message"),
    [
        ("", 127, "no crictl on this node"),
        ("", 1, "exit 1"),
        ("no json", 0, "printed no JSON"),
        ("[]", 0, "does not list pods"),
        ('{"items": [7, {}]}', 0, "no pod of the dcgm-exporter"),
    ],
)
def test_a_runtime_that_does_not_answer_is_no_success(stdout: str, exit_status: int, message: str) -> None:
    host = FakeHost()
    host.run = lambda argv, _: result(argv, exit_status, stdout)  # type: ignore[method-assign]
    with pytest.raises(HostError, match=message):
        FAULT.prior_state(EXPORTER, 0, host)


@pytest.mark.parametrize("component", list(Component))
def test_each_component_is_known_by_each_of_its_labels(component: Component) -> None:
    assert all(component_of(dict([label])) is component for label in LABELS[component])
