from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import (
    FaultInjected,
    FrameRead,
    GpusIdentified,
    NodeSeen,
    RunStarted,
    StepEnded,
    TargetsChosen,
)
from gameday.history.frames import SCHEMAS, Frames
from gameday.report.notes import Notes, read_notes
from gameday.values.nodes import NodeSnapshot
from gameday.values.results import Step, StepOutcome
from tests.game_days.conftest import (
    PATIENCE_S,
    QUICK,
    SHORT_HOLD,
    SILENT,
    Arena,
    Played,
    changed,
    patient,
    send,
    step_started,
    waits_for,
)
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.gameday, pytest.mark.timeout(1800)]


@pytest.mark.gate
def test_the_chain_holds_and_the_cluster_is_as_before(clean_arena: Arena) -> None:
    played = clean_arena.play(patient(QUICK))
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


@pytest.mark.gate
@pytest.mark.slow
def test_nobody_watching_turns_the_report_red(tmp_path: Path) -> None:
    """A cluster of its own: a controller that starts again afterwards would read the log and quarantine late."""
    plan = changed(patient(QUICK), "expect.alerts", [{"name": "GPUXidCritical", "within": "3s"}])
    plan = changed(plan, "expect.taints", [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "3s"}])
    path = tmp_path / "plan.yaml"
    YAML(typ="safe", pure=True).dump(plan, path)
    argv = [sys.executable, "-m", "gameday.cli", "rehearse", str(path), "--detector", "off", "--nodes", "2"]
    done = subprocess.run(
        [*argv, "--gpus", "4", "--reports", str(tmp_path / "reports")],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_S,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    played = Played(done.returncode, done.stdout, next((tmp_path / "reports").iterdir()))
    assert {"alert-fires", "taint-set"} <= played.broken()
    assert played.verdicts()["node-as-before"] == "held"
    assert "doctor: no scraped target has gameday_health_gpu_fault_active; nobody watches this rehearsal" in done.stdout
    assert "--detector off" not in done.stdout.splitlines()[-2]  # the command to copy


@pytest.mark.gate
@pytest.mark.slow
def test_prometheus_down_at_baseline_is_a_refusal(clean_arena: Arena) -> None:
    prometheus = clean_arena.cluster.child("prometheus")
    prometheus.end()
    try:
        played = clean_arena.play(patient(QUICK))
    finally:
        _start_again(clean_arena, "prometheus")
    assert played.exit_code == 5, played.output
    assert "connection refused" in played.output
    assert not played.history.of(FaultInjected)


@pytest.mark.slow
def test_api_server_restarted_in_mid_run(clean_arena: Arena) -> None:
    def restart(_: object) -> None:
        api = clean_arena.cluster.child("apiserver")
        api.end()
        api.start()
        api.await_ready_line()

    played = clean_arena.play_and_when(patient(QUICK), step_started(Step.AWAIT_ALERT), restart)
    assert played.exit_code == 0, played.output


@contextmanager
def asked(at_first: Callable[[], None]) -> Iterator[str]:
    """The URL of a server that calls `at_first` before it answers for the first time."""
    still_to_call = [at_first]

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            while still_to_call:
                still_to_call.pop()()
            self.send_response(200)
            self.end_headers()

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.gate
@pytest.mark.slow
def test_ctrl_c_while_the_fault_goes_in_undoes_the_run_and_reports_it(clean_arena: Arena) -> None:
    """The nodes stand still from a question before the fault on, or it might be in before a busy machine strikes."""
    nodes = clean_arena.cluster.child("nodes").process
    assert nodes is not None

    def strike(process: subprocess.Popen[str]) -> None:
        process.send_signal(signal.SIGINT)
        nodes.send_signal(signal.SIGCONT)

    with asked(lambda: nodes.send_signal(signal.SIGSTOP)) as url:
        plan = changed(QUICK, "fault", {"type": "clock_lock", "sm_clock_mhz": 1200})
        probe = {"name": "before", "http": {"url": url}, "stays_for": "1s", "timeout": "60s"}
        plan = changed(plan, "expect", {"stays_schedulable_for": "1s", "probes": [probe]})
        try:
            played = clean_arena.play_and_when(patient(plan), waits_for("injector pod"), strike)
        finally:
            nodes.send_signal(signal.SIGCONT)
    assert played.exit_code == 3, played.output
    ended = {event.step: event.outcome for event in played.history.of(StepEnded)}
    assert ended[Step.INJECT] is StepOutcome.ABORTED
    assert ended[Step.AWAIT_ALERT] is ended[Step.QA_NODE] is StepOutcome.NOT_REACHED


# `make torture` interrupts every step twice, and tests/scripted/test_aborts.py does without a signal.
@pytest.mark.slow
def test_ctrl_c_twice_does_not_interrupt_the_undo(clean_arena: Arena) -> None:
    played = clean_arena.play_and_when(QUICK, step_started(Step.RECOVER), send(signal.SIGINT, signal.SIGINT))
    assert played.exit_code == 3, played.output


@pytest.mark.gate
@pytest.mark.slow
def test_a_killed_run_is_taken_out_by_its_pods_deadline_and_reaped(clean_arena: Arena) -> None:
    plan = changed(patient(SILENT), "fault.hold", SHORT_HOLD)
    played = clean_arena.play_and_when(plan, step_started(Step.AWAIT_ALERT), send(signal.SIGKILL))
    assert played.exit_code == -signal.SIGKILL
    assert played.folder is not None
    argv = [sys.executable, "-m", "gameday.cli", "reap", "--profile", str(clean_arena.cluster.profile)]
    argv += ["--reports", str(played.folder.parent)]
    environment = {**os.environ, **clean_arena.cluster.prefect_client}
    reaped = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=environment)
    assert reaped.returncode == 0, reaped.stdout + reaped.stderr
    assert "clean" in reaped.stdout
    flow_run = played.history.of(RunStarted)[0].flow_run_id
    state = prefect_api(clean_arena.cluster.prefect_client).get(f"/flow_runs/{flow_run}").json()["state"]
    assert (state["type"], state["name"]) == ("CRASHED", "Crashed")
    argv = [sys.executable, "-m", "gameday.cli", "report", str(played.folder)]
    rendered = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=PATIENCE_S)
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
