"""Whole game-days in each way of the GPU operator, and what goes wrong with one: each ends on a clean cluster."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client import AppsV1Api
from ruamel.yaml import YAML

from gameday.cluster.operands import AWAY
from gameday.errors import HostError
from gameday.history.events import AllocatableSeen, CanaryMeasured, FaultInjected, LabelSeen, Record, Remediated
from gameday.host.base import HoldMemory
from gameday_rehearsal.blueprint import Size
from gameday_rehearsal.nodes.gpu_operator import GpuOperator
from gameday_rehearsal.nodes.kubelet import POD_RESOURCES_ANNOTATION, POD_RESOURCES_ELSEWHERE
from tests.game_days.conftest import QUICK, Arena, arena_in, changed, send
from tests.game_days.test_doctor import doctor, failed
from tests.game_days.test_post_mortem import eventually

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
PLUGIN, TOOLKIT = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.container-toolkit"
OPERATOR = "gpu-operator"
SIZE = Size(nodes=3, gpus=4, spare=1)
CANARY = {"measure": "all-reduce bus bandwidth", "stays_above": "90%"}


@pytest.fixture(params=[GpuOperator.CDI, GpuOperator.NRI, GpuOperator.INDEX, GpuOperator.RUNTIME_CLASS], ids=str)
def operated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena_in(tmp_path_factory.mktemp("operated"), SIZE, gpu_operator=request.param) as started:
        yield started


@pytest.fixture(scope="module")
def cdi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    with arena_in(tmp_path_factory.mktemp("cdi"), SIZE, gpu_operator=GpuOperator.CDI) as started:
        yield started


@pytest.fixture
def clean_cdi(cdi: Arena) -> Iterator[Arena]:
    before = cdi.nodes()
    yield cdi
    left, after = cdi.leftovers(), cdi.nodes()
    cdi.heal()
    assert (left, after) == ([], before)


def plugin_label(value: str) -> Any:
    def seen(record: Record) -> bool:
        return isinstance(record.event, LabelSeen) and (record.event.label, record.event.value) == (PLUGIN, value)

    return seen


def plugin_is_gone(record: Record) -> bool:
    return isinstance(record.event, AllocatableSeen) and record.event.gpus == 0


def test_a_game_day_passes_its_canary_finds_its_gpus_and_the_reset_moves_the_operands(operated: Arena) -> None:
    before = operated.nodes()
    played = operated.play(changed(QUICK, "expect.canary", CANARY))
    assert played.exit_code == 0, played.output
    measured = [seen.value for seen in played.history.of(CanaryMeasured)]
    assert len(measured) >= 2 and all(measured)
    (reset,) = played.history.of(Remediated)
    assert reset.ok and reset.action == "gpu-reset"
    plugin = [seen.value for seen in played.history.of(LabelSeen) if seen.label == PLUGIN]
    assert plugin == [AWAY, "true"]
    assert not [seen for seen in played.history.of(LabelSeen) if seen.label == TOOLKIT]
    assert (operated.leftovers(), operated.nodes()) == ([], before)


def test_the_doctor_finds_nothing_wrong_and_names_the_way(clean_cdi: Arena) -> None:
    _, rows = doctor(clean_cdi, "--send-pod")
    assert failed(rows) == set()
    assert rows["gpus: the driver in our pods"]["detail"] == "RuntimeClass nvidia"
    assert "strategy is cdi-annotations,cdi-cri, so" in rows["gpus: a canary's own GPUs"]["detail"]
    assert "device-plugin, dcgm, dcgm-exporter" in rows["gpus: operands before a GPU reset"]["detail"]


@pytest.fixture
def hidden(clean_cdi: Arena) -> Iterator[Arena]:
    """The kubelets' pod-resources API is where no pod looks for it."""

    def annotate(value: str | None) -> None:
        for node in clean_cdi.nodes():
            clean_cdi.core.patch_node(node, {"metadata": {"annotations": {POD_RESOURCES_ANNOTATION: value}}})

    annotate(POD_RESOURCES_ELSEWHERE)
    yield clean_cdi
    annotate(None)


def test_a_canary_that_cannot_find_its_gpu_is_unknown_with_each_reason(hidden: Arena) -> None:
    """Jobs hold some of the GPUs, and NVML shows all four: it does not say which of them the canary holds."""
    expect = {"canary": {"measure": "copy to the GPU", "falls_below": "50%"}, "stays_schedulable_for": "1s"}
    plan = changed(changed(QUICK, "fault", {"type": "noop", "hold": "30s"}), "expect", expect)
    plan = changed(changed(plan, "recover.remediation", "none"), "targets.names", ["gpu-node-1"])
    played = hidden.play(plan)
    assert played.exit_code == 2, played.output
    assert played.verdicts()["canary"] == "unknown"
    why = played.history.of(CanaryMeasured)[0].detail
    assert why.startswith("no way says which GPUs this pod holds: NVIDIA_VISIBLE_DEVICES: it is 'void'; ")
    assert "the kubelet's pod-resources socket does not answer: No such file or directory; " in why
    assert re.search(r"NVML shows 4 GPU\(s\), and the pod asked for [12]$", why)


def test_without_any_way_to_the_driver_a_run_is_refused_in_words(
    clean_cdi: Arena, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    yaml = YAML(typ="safe", pure=True)
    profile = yaml.load(clean_cdi.cluster.profile.read_text())
    del profile["agent_runtime_class"]
    without = tmp_path / "profile.yaml"
    yaml.dump(profile, without)
    monkeypatch.setattr(clean_cdi.cluster, "profile", without)
    played = clean_cdi.play(QUICK)
    assert played.exit_code == 5, played.output
    assert "NVML not found" in played.output and "agent_runtime_class" in played.output
    assert not list(played.history.of(FaultInjected))
    _, rows = doctor(clean_cdi)
    line = rows["gpus: the driver in our pods"]
    assert (line["ok"], "agent_runtime_class: nvidia" in line["fix"]) == (None, True)


def test_a_run_that_is_killed_while_the_operands_are_away_is_reaped(clean_cdi: Arena) -> None:
    played = clean_cdi.play_and_when(QUICK, plugin_label(AWAY), send(signal.SIGKILL))
    assert played.exit_code == -signal.SIGKILL
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(clean_cdi.cluster.profile)]
    reaped = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert reaped.returncode == 0, reaped.stdout + reaped.stderr


def removal(hold: str) -> dict[str, Any]:
    """A plan that takes the last GPU of a node without jobs off the bus."""
    plan = changed(QUICK, "fault", {"type": "gpu_removed", "gpu": 3, "hold": hold})
    plan = changed(plan, "expect", {"stays_schedulable_for": "20s", "allow_other_alerts": True})
    plan = changed(plan, "guardrails.allow_dangerous", ["gpu_removed"])
    return changed(plan, "recover.remediation", "none")


def test_the_operands_leave_for_a_removal_and_show_the_missing_gpu(clean_cdi: Arena) -> None:
    played = clean_cdi.play(removal("60s"))
    assert played.exit_code == 0, played.output
    (injected,) = played.history.of(FaultInjected)
    moved = [(seen.value, seen.at) for seen in played.history.of(LabelSeen) if seen.label == PLUGIN]
    (away, left), (back, returned) = moved
    assert (away, back) == (AWAY, "true")
    assert left < injected.written_at < returned, "they leave before the GPU does, and are back while it is gone"
    offered = [seen.gpus for seen in played.history.of(AllocatableSeen)]
    assert offered[-3:] == [0, 3, 4], "no plugin, the plugin that counts three, the GPU is back"


def ecc_off(hold: str) -> dict[str, Any]:
    """A plan that resets the last GPU of a node without jobs twice, on the way in and on the way out."""
    plan = changed(removal(hold), "fault", {"type": "ecc_off", "gpu": 3, "reset": True, "hold": hold})
    plan = changed(plan, "expect.stays_schedulable_for", "1s")
    return changed(plan, "guardrails.allow_dangerous", ["ecc_off"])


def assert_ecc_is_on(arena: Arena) -> None:
    modes = [(gpu.ecc_mode, gpu.ecc_mode_pending) for host in arena.hosts().values() for gpu in host.gpus()]
    assert set(modes) == {(True, True)}


def test_the_operands_leave_for_both_resets_of_ecc_off_and_are_there_in_between(clean_cdi: Arena) -> None:
    played = clean_cdi.play(ecc_off("90s"))
    assert played.exit_code == 0, played.output
    (injected,) = played.history.of(FaultInjected)
    assert any("--gpu-reset" in line for line in injected.evidence)
    moved = [(seen.value, seen.at) for seen in played.history.of(LabelSeen) if seen.label == PLUGIN]
    assert [value for value, _ in moved] == [AWAY, "true", AWAY, "true"]
    assert moved[0][1] < injected.written_at < moved[1][1], "they are back while the fault is in"
    assert_ecc_is_on(clean_cdi)


def test_a_run_that_is_killed_while_ecc_is_off_is_reaped(clean_cdi: Arena) -> None:
    """The reaper sends the operands away for the reset that turns ECC on, and brings them back."""

    def is_in(record: Record) -> bool:
        return isinstance(record.event, LabelSeen) and record.event.value == "true" and record.event.label == PLUGIN

    played = clean_cdi.play_and_when(ecc_off("90s"), is_in, send(signal.SIGKILL))
    assert played.exit_code == -signal.SIGKILL
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(clean_cdi.cluster.profile)]
    deadline = time.monotonic() + 90
    while (reaped := subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)).returncode:
        assert time.monotonic() < deadline, reaped.stdout + reaped.stderr
    assert_ecc_is_on(clean_cdi)


def test_a_run_that_is_killed_before_the_removal_is_reaped(clean_cdi: Arena) -> None:
    played = clean_cdi.play_and_when(removal("60s"), plugin_label(AWAY), send(signal.SIGKILL))
    assert played.exit_code == -signal.SIGKILL
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(clean_cdi.cluster.profile)]
    reaped = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert reaped.returncode == 0, reaped.stdout + reaped.stderr


@pytest.mark.parametrize("plan", [QUICK, removal("60s")], ids=["reset", "removal"])
def test_during_a_driver_upgrade_a_run_that_would_move_operands_is_refused(
    clean_cdi: Arena, plan: dict[str, Any]
) -> None:
    upgrade = "paused-for-driver-upgrade"
    names = list(clean_cdi.nodes())
    for name in names:
        clean_cdi.core.patch_node(name, {"metadata": {"labels": {PLUGIN: upgrade}}})
    try:
        played = clean_cdi.play(plan)
    finally:
        for name in names:
            clean_cdi.core.patch_node(name, {"metadata": {"labels": {PLUGIN: "true"}}})
    assert played.exit_code == 5, played.output
    assert upgrade in " ".join(played.output.split()) or "offers no" in played.output


@pytest.fixture
def as_shipped(cdi: Arena) -> Iterator[Arena]:
    """The operator's operands tolerate what its chart lists as shipped, in place of what docs/empty-cluster.md adds."""
    apps = AppsV1Api(cdi.core.api_client)
    before = {
        one.metadata.name: one.spec.template.spec.tolerations for one in apps.list_namespaced_daemon_set(OPERATOR).items
    }

    def tolerate(tolerations: dict[str, Any]) -> None:
        for name, wanted in tolerations.items():
            apps.patch_namespaced_daemon_set(
                name, OPERATOR, {"spec": {"template": {"spec": {"tolerations": wanted}}}},
                _content_type="application/merge-patch+json",
            )  # fmt: skip
        eventually(lambda: all(map(is_rolled_out, apps.list_namespaced_daemon_set(OPERATOR).items)), bool)

    tolerate({key: [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}] for key in before})
    yield cdi
    cdi.heal()
    tolerate(cdi.core.api_client.sanitize_for_serialization(before))


def is_rolled_out(daemon_set: Any) -> bool:
    status, wanted = daemon_set.status, daemon_set.status.desired_number_scheduled
    return (
        status.observed_generation == daemon_set.metadata.generation
        and status.updated_number_scheduled == status.number_available == wanted
    )


def test_on_an_operator_as_shipped_a_reset_is_refused_with_the_command_that_helps(as_shipped: Arena) -> None:
    played = as_shipped.play(QUICK)
    assert played.exit_code == 5, played.output
    assert "they do not tolerate trainy.konduktor.ai/faulty=true:NoSchedule" in " ".join(played.output.split())
    assert "kubectl patch clusterpolicy cluster-policy" in " ".join(played.output.split())
    assert not list(played.history.of(FaultInjected))
    assert as_shipped.leftovers() == []
    _, rows = doctor(as_shipped)
    assert "gpus: operands return to a tainted node" in failed(rows)


def test_on_an_operator_as_shipped_a_taint_that_no_plan_expects_leaves_the_reset_out(as_shipped: Arena) -> None:
    """The node stays out of service, as nothing proved it good."""
    plan = changed(QUICK, "expect.taints", [])
    plan = changed(plan, "recover.within", "20s")
    played = as_shipped.play(plan)
    (reset,) = played.history.of(Remediated)
    assert not reset.ok and "they do not tolerate trainy.konduktor.ai/faulty=true:NoSchedule" in reset.detail
    assert not [seen for seen in played.history.of(LabelSeen) if seen.label == PLUGIN], "no operand was moved"


def test_where_the_operands_stay_nvidia_smi_resets_no_gpu(clean_cdi: Arena) -> None:
    node, host = next(iter(clean_cdi.hosts().items()))
    pods = clean_cdi.core.list_namespaced_pod("gpu-operator", field_selector=f"spec.nodeName={node}").items
    users = {user.pod: user.command for user in host.gpu_users(0) if user.pod}
    for pod in pods:
        assert pod.metadata.uid in users, (pod.metadata.name, users)
    assert any("nv-hostengine" in command for command in users.values())
    host.run(["nvidia-smi", "-i", "0", "-pm", "0"], 5)
    refused = host.run(["nvidia-smi", "--gpu-reset", "-i", "0"], 5)
    host.run(["nvidia-smi", "-i", "0", "-pm", "1"], 5)
    assert refused.exit_status and "In use by another client" in refused.stdout


def test_a_reset_fails_in_words_when_somebody_opens_the_gpu_again(cdi: Arena) -> None:
    """The node stays out of service, as nothing proved it good; the operands are back. Last: it leaves it so."""
    before = cdi.nodes()
    hosts = list(cdi.hosts().values())

    def reopen(_: subprocess.Popen[str]) -> None:
        for host in hosts:
            for gpu in range(4):
                try:
                    host.start_work(gpu, HoldMemory(leave_bytes=1 << 30))
                except HostError:
                    continue  # its memory is taken by a job

    try:
        played = cdi.play_and_when(changed(QUICK, "recover.within", "15s"), plugin_is_gone, reopen)
    finally:
        for host in hosts:
            for gpu in range(4):
                host.end_work(gpu)
    (reset,) = played.history.of(Remediated)
    assert not reset.ok and "is open in 1 process(es)" in reset.detail, played.output
    assert played.exit_code == 4, played.output
    assert [left for left in cdi.leftovers() if not left.startswith("ledger/")] == []
    labels = {node: labels for node, (_, _, labels, _) in cdi.nodes().items()}
    assert labels == {node: labels for node, (_, _, labels, _) in before.items()}
