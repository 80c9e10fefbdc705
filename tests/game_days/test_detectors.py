"""Whole game-days whose expectations are a detector profile's, with a stand-in that does what the profile says."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.detectors.load import load_detector
from gameday.history.events import ConditionSeen, DetectorConsulted, KubernetesEventSeen, LabelSeen, Problem
from gameday.processes.children import Child
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.cluster import RehearsalCluster
from gameday_rehearsal.seed import seeding
from tests.game_days.conftest import QUICK, Arena, Played, changed
from tests.game_days.test_guarded_runs import command

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

PLANS = Path(__file__).parents[2] / "plans" / "detectors"

# Beside our own controller, which taints for the same line: so the stand-in only says things, and cordons.
OURS = """\
apiVersion: gameday/v1
kind: DetectorProfile
name: ours
title: A team's own detector
configuration: as this test starts it
reads: [kernel log]
source: this test
rules:
  - faults: [xid]
    when: {xid: [48]}
    conditions: [{type: OursGPU, status: True, reason: "Xid{xid}", within: 20s, typically: 200ms}]
    cordoned: {within: 20s, typically: 300ms}
    labels: [{key: ours.example/state, value: broken, within: 20s, typically: 300ms}]
    events: [{reason: "OursXid{xid}", within: 20s, typically: 200ms}]
    ends_with: [gpu-reset]
    source: this test
"""


@pytest.fixture(scope="module")
def profile(arena: Arena) -> Iterator[Path]:
    """A team's profile, and a stand-in for its detector for as long as the tests of this file run."""
    path = arena.folder / "ours.yaml"
    path.write_text(OURS, encoding="utf-8")
    with seeding(arena.cluster.admin_kubeconfig) as seeder:
        kubeconfig = seeder.fake_detector_kubeconfig(arena.folder / "stand-in.kubeconfig")
    argv = [
        sys.executable,
        "-m",
        "gameday_rehearsal.fake_detector",
        "--profile",
        str(path),
        "--kubeconfig",
        str(kubeconfig),
    ]
    urls = ["--loki-url", arena.cluster.urls["loki"], "--nodes-url", "http://127.0.0.1:9"]
    child = Child("stand-in", [*argv, *urls], arena.folder / "stand-in.log")
    child.start()
    try:
        child.await_ready_line()
        yield path
    finally:
        child.end()


@pytest.fixture(scope="module")
def played(arena: Arena, profile: Path) -> Played:
    """One game-day that leaves what the detector does to its profile, and expects our controller's taint itself."""
    arena.settle()
    # Not the Xid of the other game-days here: our controller writes no Event twice in a minute.
    plan = changed(changed(QUICK, "detector", str(profile)), "fault.xid", 48)
    return arena.play(changed(plan, "expect.allow_other_alerts", True))


def test_the_game_day_holds_against_a_detector_that_does_what_its_profile_says(played: Played) -> None:
    assert played.exit_code == 0, played.output
    said = {"cordoned", "condition-set", "condition-clears", "label-set", "event-written"}
    verdicts = played.verdicts()
    assert {name: verdicts.get(name) for name in said} == dict.fromkeys(said, "held")


def test_the_history_says_what_came_from_the_profile(played: Played) -> None:
    consulted = played.history.last(DetectorConsulted)
    assert consulted is not None
    assert (consulted.detector, consulted.sees) == ("ours", True)
    assert set(consulted.filled) == {"cordoned", "conditions", "labels", "events"}


def test_the_report_marks_what_came_from_the_profile(played: Played) -> None:
    assert played.folder is not None
    page = (played.folder / "report.html").read_text(encoding="utf-8")
    assert "from the profile of ours" in page
    assert page.count("from the profile of ours") == 5


def test_what_the_detector_says_is_in_the_history_with_its_end(played: Played) -> None:
    history = played.history
    statuses = [seen.status for seen in history.of(ConditionSeen) if seen.condition == "OursGPU"]
    assert statuses == ["True", "False"]
    labels = [seen.value for seen in history.of(LabelSeen) if seen.label == "ours.example/state"]
    assert labels == ["broken", None]
    about = [seen for seen in history.of(KubernetesEventSeen) if seen.reason == "OursXid48"]
    assert len(about) == 1
    assert about[0].message.startswith("stand-in for ours: ")


def test_events_about_the_node_are_seen_of_our_own_controller_too(played: Played) -> None:
    assert "GPUXid48" in {seen.reason for seen in played.history.of(KubernetesEventSeen)}


@pytest.fixture(scope="module")
def watched(arena: Arena, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Arena]:
    """A cluster of its own for each detector. The arena's Prefect server serves it too."""
    known = {"konduktor": (Detector.KONDUKTOR, None)}
    detector, stand_in = known.get(request.param) or (Detector.OFF, load_detector(request.param))
    folder = tmp_path_factory.mktemp("watched")
    size = Size(nodes=3, gpus=8)
    with RehearsalCluster(
        Blueprint(folder / "cluster", size, detector, prefect=False, fake_detector=stand_in)
    ) as cluster:
        cluster.urls["prefect"] = arena.cluster.urls["prefect"]
        cluster.prefect_password = arena.cluster.prefect_password
        yield Arena(cluster, folder)


@pytest.mark.parametrize(
    ("watched", "plan"),
    [
        ("nvsentinel", "nvsentinel-xid-79"),
        ("konduktor", "konduktor-xid-13"),
        ("konduktor", "konduktor-real-xid-31"),
        ("node-problem-detector", "node-problem-detector-xid-79"),
        ("eks-node-monitoring-agent", "eks-xid-95"),
    ],
    indirect=["watched"],
)
def test_a_shipped_detector_plan_holds_where_its_detectors_fake_detector_watches(watched: Arena, plan: str) -> None:
    played = watched.play(YAML(typ="safe", pure=True).load((PLANS / f"{plan}.yaml").read_text(encoding="utf-8")))
    assert played.exit_code == 0, played.output


def test_a_rehearsal_plays_a_detector_plan_where_the_named_fake_detector_watches(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "gameday.cli", "rehearse", str(PLANS / "device-plugin-gpu-removed.yaml")]
    argv += ["--detector", "device-plugin", "--nodes", "3", "--reports", str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=380)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_fault_that_harms_the_clusters_detector_is_a_warning_wherever_the_plan_is_met(
    clean_arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAMEDAY_DETECTOR", "nvsentinel")
    plan = changed(QUICK, "fault", {"type": "sxid", "sxid": 20034, "pci": "0000:c1:00", "hold": "30s"})
    plan = changed(plan, "expect.alerts", [{"name": "NVSwitchSXidFatal", "within": "20s"}])
    code, said = command(clean_arena, plan, "run", "--dry-run")
    assert code == 0, said
    assert "# WARNING: detector nvsentinel: Its syslog-health-monitor never gets past" in said
    assert "/var/lib/nvsentinel/gpu_metadata.json" in said
    code, said = command(clean_arena, plan, "doctor", "--json")
    repairers, harm = [one for one in json.loads(said) if one["area"] == "detectors"]
    assert code == 2, said
    assert {(row["name"], row["ok"]) for row in (repairers, harm)} == {("nvsentinel suits this plan", None)}
    assert "two repairs would meet" in repairers["detail"] and "by: cluster" in repairers["fix"]
    assert "never gets past" in harm["detail"] and "gpu_metadata.json" in harm["fix"]
    # A run that is refused has said it, too: nothing of it needs the fault to go in.
    monkeypatch.setenv("GAMEDAY_OPT_IN_LABEL", "nobody/has=this")
    played = clean_arena.play(plan)
    assert played.exit_code == 5 and played.folder is not None, played.output
    assert "never gets past" in played.output
    assert any("never gets past" in problem.what for problem in played.history.of(Problem))
    assert "never gets past" in (played.folder / "report.html").read_text(encoding="utf-8")
