"""`gameday fleet` on the rehearsal's cluster: who is slow, who is busy, and how fast it makes room."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from prefect.settings import temporary_settings

from gameday import cli
from gameday.cluster.gpu_class import GPU_CLASS_LABEL
from gameday.cluster.nodes import GPU_RESOURCE
from gameday.exit_codes import ExitCode
from gameday_fleet import probing
from gameday_rehearsal.blueprint import Size
from gameday_rehearsal.slow_gpus import choose_slow
from tests.game_days.conftest import QUIET, Arena, arena_in, clean_arena
from tests.rehearsal.processes import until
from tests.support.prefect_api import client_settings

__all__ = ["clean_arena"]
pytestmark = [pytest.mark.slow, pytest.mark.gameday, pytest.mark.timeout(300)]
SLOW = choose_slow(3, 6, 4, seed=1)


@pytest.fixture(scope="module")
def arena(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Arena]:
    """Six nodes, three slow GPUs, and training work on three GPUs."""
    with arena_in(tmp_path_factory.mktemp("fleet"), Size(nodes=6, gpus=4, spare=5, slow_gpus=SLOW)) as started:
        yield started


def fleet(arena: Arena, reports: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    """Run the command in this process; return its exit code, its report and what it printed."""
    settings = {**client_settings(arena.cluster.prefect_client), **QUIET}
    argv = ["fleet", "--profile", str(arena.cluster.profile), "--reports", str(reports), *arguments]
    said = io.StringIO()
    with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(argv)
    found = sorted(reports.glob("*/fleet-report.json"))
    return code, json.loads(found[-1].read_bytes()) if found else {}, said.getvalue()


def probes(arena: Arena) -> list[Any]:
    """The probes' pods that run."""
    pods = arena.core.list_namespaced_pod("gameday", label_selector="gameday.dev/role=probe").items
    return [pod for pod in pods if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp]


def trainers(arena: Arena) -> dict[str, str]:
    pods = arena.core.list_namespaced_pod("training").items
    return {pod.metadata.uid: pod.status.phase for pod in pods if pod.metadata.labels.get("app") != "urgent"}


def while_it_probes(arena: Arena, act: Callable[[list[Any]], None]) -> threading.Thread:
    """Act once every node is being probed."""

    def wait_and_act() -> None:
        until(lambda: len(probes(arena)) == 6, 60, "six probes to run")
        act(probes(arena))

    thread = threading.Thread(target=wait_and_act, daemon=True)
    thread.start()
    return thread


def urgent_pod(gpus: int) -> dict[str, Any]:
    container = {
        "name": "c",
        "image": "x",
        "command": ["sleep", "600"],
        "resources": {"limits": {GPU_RESOURCE: str(gpus)}},
    }
    return {
        "metadata": {"name": "urgent", "labels": {"app": "urgent"}},
        "spec": {"containers": [container], "restartPolicy": "Never", "terminationGracePeriodSeconds": 1},
    }


def gpu_classes(arena: Arena) -> dict[str, str]:
    found = arena.core.list_node(label_selector=GPU_CLASS_LABEL).items
    return {node.metadata.name: node.metadata.labels[GPU_CLASS_LABEL] for node in found}


def test_it_names_the_three_slow_gpus_labels_nodes_and_touches_no_busy_gpu(
    clean_arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until(lambda: len(trainers(clean_arena)) == 2 and clean_arena.is_training(), 60, "both training pods to run")
    before = trainers(clean_arena)
    code, report, said = fleet(clean_arena, tmp_path, "--at-once", "3")
    assert code == ExitCode.FAILED, said
    slow = {f"{one['node']}/{one['gpu']}" for model in report["models"] for one in model["stragglers"]}
    assert slow == {f"{one.node}/{one.gpu}" for one in SLOW}, said
    assert sum(model["gpus"] for model in report["models"]) == 21, said
    assert sum(one["gpus"] for one in report["left_out"]) == 3
    assert {one["why"].partition(":")[0] for one in report["left_out"]} == {"busy"}
    assert trainers(clean_arena) == before
    assert set(before.values()) == {"Running"}
    assert gpu_classes(clean_arena) == {}, "the profile asks for no labels"
    monkeypatch.setenv("GAMEDAY_GPU_CLASS_LABELS", "true")
    code, report, said = fleet(clean_arena, tmp_path, "--at-once", "6")
    assert report["drift"]["matched"] == 21, said
    assert report["drift"]["drifted"] == []
    whole = {one["node"]: one["gpu_class"] for one in report["classes"]}
    assert gpu_classes(clean_arena) == whole
    busy = {one["node"] for one in report["left_out"]}
    assert set(whole) == {f"gpu-node-{number}" for number in range(1, 7)} - busy
    assert {node for node, value in whole.items() if value == "slow"} == {one.node for one in SLOW} & set(whole)
    code, _, said = fleet(clean_arena, tmp_path, "--unlabel")
    assert (code, gpu_classes(clean_arena)) == (ExitCode.PASSED, {}), said


def test_it_makes_room_for_work_that_waits_and_for_the_scheduler(
    clean_arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "VIRTUAL_SECONDS", 120.0)
    core = clean_arena.core

    def act(running: list[Any]) -> None:
        smallest = min(running, key=lambda pod: int(pod.spec.containers[0].resources.limits[GPU_RESOURCE]))
        core.delete_namespaced_pod(smallest.metadata.name, "gameday")  # as a scheduler does that preempts
        until(lambda: len(core.list_namespaced_pod("gameday").items) < len(running), 30, "the probe to be gone")
        core.create_namespaced_pod("training", urgent_pod(4))

    acted = while_it_probes(clean_arena, act)
    code, report, said = fleet(clean_arena, tmp_path, "--at-once", "6", "--load", "120s")
    acted.join(30)
    try:
        assert code == ExitCode.UNKNOWN, said
        assert report["models"] == []
        reasons = [one["why"] for one in report["left_out"] if not one["why"].startswith("busy")]
        assert len(reasons) == 6, reasons
        assert all(why.startswith("yielded: ") for why in reasons), reasons
        assert any("deleted while it ran" in why or "told to end" in why for why in reasons), reasons
        until(lambda: core.read_namespaced_pod("urgent", "training").status.phase == "Running", 30, "the work to run")
    finally:
        core.delete_namespaced_pod("urgent", "training", grace_period_seconds=0)


def test_ctrl_c_ends_the_probes_and_leaves_nothing(
    clean_arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probing, "VIRTUAL_SECONDS", 120.0)
    acted = while_it_probes(clean_arena, lambda _: os.kill(os.getpid(), signal.SIGINT))
    code, report, said = fleet(clean_arena, tmp_path, "--at-once", "6", "--load", "120s")
    acted.join(30)
    assert code == ExitCode.ABORTED, said
    assert "you pressed Ctrl-C" in report["record"]["stopped"]
    assert report["record"]["cleanliness"] == "clean"
    assert report["record"]["virtual_nodes"] == report["record"]["nodes"] == 6


def test_a_freeze_refuses_it_before_anything_is_changed(
    clean_arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_GUARDRAILS__FREEZES", '[{"start": "2020-01-01", "end": "2099-01-01", "why": "audit"}]')
    code, report, said = fleet(clean_arena, tmp_path)
    assert code == ExitCode.REFUSED
    assert "guardrail change freeze: audit" in said
    assert report == {}


def test_a_cluster_without_our_priority_class_is_told_how_to_get_it(
    clean_arena: Arena, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_CANARY_PRIORITY_CLASS", "nobody-made-it")
    code, _, said = fleet(clean_arena, tmp_path)
    assert code == ExitCode.ABORTED
    assert "kubectl apply -f deploy/rbac/priority.yaml" in " ".join(said.split())
