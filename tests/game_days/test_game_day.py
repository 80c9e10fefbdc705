from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import (
    FaultInjected,
    FrameRead,
    GpusIdentified,
    NodeSeen,
    Refused,
    RunStarted,
    StepEnded,
    TargetsChosen,
)
from gameday.history.frames import SCHEMAS, Frames
from gameday.ledger.lease import CLUSTER_LEASE
from gameday.report.notes import Notes, read_notes
from gameday.values.nodes import NodeSnapshot
from gameday.values.results import Step, StepOutcome
from tests.game_days.conftest import QUICK, SILENT, Arena, Played, changed, patient, send, step_started
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.gameday, pytest.mark.timeout(400)]


def test_the_chain_holds_and_the_cluster_is_as_before(clean_arena: Arena) -> None:
    played = clean_arena.play(QUICK)
    assert played.exit_code == 0, played.output
    assert set(played.verdicts().values()) == {"held"}
    assert played.folder is not None
    assert str(played.folder / "report.html") in played.output
    assert (played.folder / "notes.yaml").is_file() and read_notes(played.folder) == Notes()  # the form says nothing
    pods = Frames.load(played.folder / "frames").pods
    (target,) = played.history.of(TargetsChosen)[0].targets
    assert "Running" in set(pods[(pods["node"] == target.node) & (pods["namespace"] == "training")]["phase"])
    assert list(pods[pods["pod"].str.endswith("-inject")]["phase"])[-2:] == ["Succeeded", "Deleted"]
    assert {read.frame: read.rows > 0 for read in played.history.of(FrameRead)} == dict.fromkeys(
        set(SCHEMAS) - {"api_server", "scheduler"}, True
    )
    assert len(played.history.of(GpusIdentified)[0].gpus) == before_of(played).allocatable_gpus


def before_of(played: Played) -> NodeSnapshot:
    return next(seen.snapshot for seen in played.history.of(NodeSeen) if seen.phase == "before")


@pytest.mark.slow
def test_two_runs_of_one_seed_choose_the_same_target(clean_arena: Arena) -> None:
    """Play a fault that moves no work: the same seed promises the same choice on the same cluster only.

    Xid 13 sets off GPUXidWorkload, an info alert, and so short a run may end before it fires.
    """
    plan = changed(changed(QUICK, "targets.seed", 11), "fault", {"type": "xid", "xid": 13, "hold": "5s"})
    plan = changed(
        changed(plan, "expect", {"stays_schedulable_for": "1s", "allow_other_alerts": True}),
        "recover.remediation",
        "none",
    )
    played = [clean_arena.play(plan) for _ in range(2)]
    assert [one.exit_code for one in played] == [0, 0], played[0].output
    first, second = (one.history.of(TargetsChosen)[0].targets for one in played)
    assert first == second


@pytest.mark.slow
def test_nobody_watching_turns_the_report_red(tmp_path: Path) -> None:
    """A cluster of its own: a controller that starts again afterwards would read the log and quarantine late."""
    plan = changed(QUICK, "expect.alerts", [{"name": "GPUXidCritical", "within": "3s"}])
    plan = changed(plan, "expect.taints", [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "3s"}])
    path = tmp_path / "plan.yaml"
    YAML(typ="safe", pure=True).dump(plan, path)
    argv = [sys.executable, "-m", "gameday.cli", "rehearse", str(path), "--detector", "off", "--nodes", "2"]
    done = subprocess.run(
        [*argv, "--gpus", "4", "--reports", str(tmp_path / "reports")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    run = next((tmp_path / "reports").iterdir())
    verdicts = {v["check"]: v["status"] for v in json.loads((run / "verdicts.json").read_text())}
    assert verdicts["alert-fires"] == verdicts["taint-set"] == "broken"
    assert verdicts["node-as-before"] == "held"


@pytest.mark.slow
def test_prometheus_down_at_baseline_is_a_refusal(clean_arena: Arena) -> None:
    prometheus = clean_arena.cluster.child("prometheus")
    prometheus.end()
    try:
        played = clean_arena.play(QUICK)
    finally:
        _start_again(clean_arena, "prometheus")
    assert played.exit_code == 5, played.output
    assert "connection refused" in played.output
    assert not played.history.of(FaultInjected)


def test_a_missing_priority_class_is_a_refusal_before_the_fault(
    clean_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_CANARY_PRIORITY_CLASS", "no-such-class")
    played = clean_arena.play(QUICK)
    assert played.exit_code == 5, played.output
    assert "kubectl apply -f deploy/rbac/priority.yaml" in " ".join(played.output.split())
    assert not played.history.of(FaultInjected)
    assert played.result.cleanliness == "clean"


@pytest.mark.slow
def test_prometheus_down_during_the_wait_is_unknown_and_the_undo_is_done(clean_arena: Arena) -> None:
    plan = changed(QUICK, "expect.alerts", [{"name": "GPUXidCritical", "within": "4s", "resolves_within": "2s"}])
    try:
        played = clean_arena.play_and_when(
            plan, step_started(Step.INJECT), lambda _: clean_arena.cluster.child("prometheus").end()
        )
    finally:
        _start_again(clean_arena, "prometheus")
    assert played.exit_code == 2, played.output
    assert played.result.cleanliness == "clean"


@pytest.mark.slow
def test_log_store_down_is_a_refusal(clean_arena: Arena) -> None:
    logs = clean_arena.cluster.child("logstore")
    logs.end()
    try:
        played = clean_arena.play(changed(QUICK, "baseline.log_path_within", "2s"))
    finally:
        logs.start()
        logs.await_ready_line()
    assert played.exit_code == 5, played.output


@pytest.mark.slow
def test_api_server_restarted_in_mid_run(clean_arena: Arena) -> None:
    def restart(_: object) -> None:
        api = clean_arena.cluster.child("apiserver")
        api.end()
        api.start()
        api.await_ready_line()

    played = clean_arena.play_and_when(patient(QUICK), step_started(Step.AWAIT_ALERT), restart)
    assert played.exit_code == 0, played.output


@pytest.mark.slow
def test_a_second_game_day_is_refused_with_the_holders_name(arena: Arena) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": "another-run", "leaseDurationSeconds": 60, "acquireTime": now, "renewTime": now}
    arena.coordination.create_namespaced_lease("gameday", {"metadata": {"name": CLUSTER_LEASE}, "spec": spec})
    try:
        played = arena.play(QUICK)
        kept = arena.coordination.read_namespaced_lease(CLUSTER_LEASE, "gameday").spec.holder_identity
    finally:
        arena.coordination.delete_namespaced_lease(CLUSTER_LEASE, "gameday")
    assert played.exit_code == 5, played.output
    assert "another-run" in played.output
    assert kept == "another-run"
    assert arena.leftovers() == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("targets.names", ["no-such-node"], "no node of this name"),
        ("targets.selector", {"example.com/none": "such"}, "no node carries"),
    ],
)
def test_targets_that_are_not_there_are_refused(clean_arena: Arena, key: str, value: object, said: str) -> None:
    played = clean_arena.play(changed(QUICK, key, value))
    assert played.exit_code == 5, played.output
    assert said in played.output
    assert played.history.of(Refused)


@pytest.mark.slow
def test_a_taint_that_is_already_there_is_a_refusal_and_is_kept(arena: Arena) -> None:
    node = sorted(arena.nodes())[0]
    taint = {"key": "trainy.konduktor.ai/faulty", "value": "mine", "effect": "NoSchedule"}
    arena.core.patch_node(node, {"spec": {"taints": [taint]}})
    try:
        played = arena.play(changed(QUICK, "targets.names", [node]))
        kept = arena.core.read_node(node).spec.taints
    finally:
        arena.core.patch_node(node, {"spec": {"taints": None}})
    assert played.exit_code == 5, played.output
    assert "already carries" in played.output
    assert [(t.key, t.value) for t in kept] == [("trainy.konduktor.ai/faulty", "mine")]


LONG = {Step.BASELINE: ["baseline.window"], Step.VERIFY_TAINT: ["expect.workloads.canary_kept_off_for"]}
"""Waits that make a step last until a busy machine has interrupted it."""


@pytest.mark.slow
@pytest.mark.parametrize("step", list(Step))
def test_ctrl_c_undoes_the_run_and_reports_it(clean_arena: Arena, step: Step) -> None:
    plan = SILENT if step is Step.AWAIT_ALERT else QUICK
    for path in LONG.get(step, ()):
        plan = changed(plan, path, "10s")
    played = clean_arena.play_and_when(plan, step_started(step), send(signal.SIGINT))
    assert played.exit_code == 3, played.output
    ended = {event.step: event.outcome for event in played.history.of(StepEnded)}
    assert ended[step] is StepOutcome.ABORTED
    assert step is Step.QA_NODE or ended[Step.QA_NODE] is StepOutcome.NOT_REACHED


# `make torture` interrupts every step twice.
@pytest.mark.slow
@pytest.mark.parametrize("step", [Step.INJECT, Step.RECOVER])
def test_ctrl_c_twice_does_not_interrupt_the_undo(clean_arena: Arena, step: Step) -> None:
    plan = SILENT if step is Step.AWAIT_ALERT else QUICK
    played = clean_arena.play_and_when(plan, step_started(step), send(signal.SIGINT, signal.SIGINT))
    assert played.exit_code == 3, played.output


@pytest.mark.slow
def test_a_killed_run_is_taken_out_by_its_pods_deadline_and_reaped(clean_arena: Arena) -> None:
    plan = changed(SILENT, "fault.hold", "5s")
    played = clean_arena.play_and_when(plan, step_started(Step.AWAIT_ALERT), send(signal.SIGKILL))
    assert played.exit_code == -signal.SIGKILL
    assert played.folder is not None
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(clean_arena.cluster.profile)]
    argv += ["--reports", str(played.folder.parent)]
    server = f"{clean_arena.cluster.urls['prefect']}/api"
    environment = {**os.environ, "PREFECT_API_URL": server}
    reaped = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=90, env=environment)
    assert reaped.returncode == 0, reaped.stdout + reaped.stderr
    assert "clean" in reaped.stdout
    flow_run = played.history.of(RunStarted)[0].flow_run_id
    state = prefect_api(clean_arena.cluster.urls["prefect"]).get(f"/flow_runs/{flow_run}").json()["state"]
    assert (state["type"], state["name"]) == ("CRASHED", "Unknown")
    argv = [sys.executable, "-m", "gameday.cli", "report", str(played.folder)]
    rendered = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
    assert rendered.returncode == 2, rendered.stdout + rendered.stderr
    assert (played.folder / "report.html").stat().st_size > 10_000


@pytest.mark.slow
def test_a_full_disk_refuses_before_anything_is_changed(clean_arena: Arena) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    played = clean_arena.finish(*clean_arena.start(QUICK, preexec_fn=no_room))
    assert played.exit_code == 5, played.output
    assert "cannot be written" in played.output


def _start_again(arena: Arena, name: str) -> None:
    child = arena.cluster.child(name)
    child.start()
    child.await_url(f"{arena.cluster.urls[name]}/-/ready")


@pytest.mark.slow
def test_a_dangerous_fault_is_refused_where_the_clusters_profile_does_not_allow_it(
    clean_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_ALLOW_DANGEROUS", "[]")
    plan = changed(QUICK, "fault", {"type": "gpu_memory", "hold": "5s"})
    played = clean_arena.play(changed(plan, "guardrails.allow_dangerous", ["gpu_memory"]))
    assert played.exit_code == 5, played.output
    assert "does not allow the dangerous fault gpu_memory" in played.output
