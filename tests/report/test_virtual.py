"""Virtual GPUs are named as such in every report, by the nodes that were broken, whatever started the run."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from kubernetes import client

from gameday.cluster.nodes import snapshot
from gameday.history.events import RunStarted, TargetsChosen
from gameday.report.earlier_runs import earlier_runs
from gameday.report.junit import junit
from gameday.report.message import message
from gameday.report.openmetrics import openmetrics
from gameday.report.render import render
from gameday.report.run_folder import load_run_folder
from gameday.report.run_markdown import run_markdown
from gameday.report.summarise import summarise
from gameday.report.summary import Summary, virtual_words
from gameday.runs.catalog import read_catalog
from gameday.runs.digest import digest_of
from gameday.values.nodes import VIRTUAL_PROVIDER, Target
from tests.report import run_builder as build
from tests.report.page import NOW, drawn

OTHER = "gpu-node-09"


def played(
    folder: Path, *virtual: str, targets: tuple[str, ...] = (build.NODE,), shift: int = 0, **started: object
) -> Path:
    """Write a run of `gameday run` on these targets, of which some are virtual."""
    chosen = {"targets": tuple(Target(node=node) for node in targets), "virtual": virtual}
    timed = build.replacing(build.passing(), lambda e: isinstance(e, TargetsChosen), **chosen)
    own = {"trigger": "manual", "run_id": folder.name, **started}
    return build.write(folder, build.replacing(timed, lambda e: isinstance(e, RunStarted), **own))


def summary(folder: Path) -> Summary:
    found = summarise(load_run_folder(folder))
    assert found
    return found


def test_every_report_of_a_run_on_virtual_nodes_says_so(tmp_path: Path) -> None:
    folder = played(tmp_path / "run", build.NODE)
    page, data = drawn(folder, "verdict", "outage", "identity")
    assert data["verdict"]["virtual"] == "Virtual GPUs"
    assert "Manual by ada" in page.text("verdict") and "Virtual GPUs" in page.text("verdict")
    assert "GPU-hours of virtual GPUs" in page.text("outage")
    assert f"{build.NODE} (virtual)" in page.text("identity").replace(" ,", ",")
    run = load_run_folder(folder)
    assert b'name="virtual-gpus" value="yes"' in junit(run)
    assert "virtual GPUs" in run_markdown(run, folder / "report.html", None).splitlines()[0]
    one = summary(folder)
    assert one.rehearsal
    assert "(virtual GPUs)" in message(one, None, "").body
    assert "(virtual GPUs)" in openmetrics([one]).decode()


def test_a_run_on_real_nodes_says_nothing_of_virtual_ones(tmp_path: Path) -> None:
    folder = played(tmp_path / "run")
    page, data = drawn(folder, "verdict", "outage", "identity")
    assert "irtual" not in page.text() and data["verdict"]["virtual"] == ""
    assert b'name="virtual-gpus" value="no"' in junit(load_run_folder(folder))
    assert not summary(folder).rehearsal


@pytest.mark.parametrize(
    ("started", "rehearsal"),
    [({"trigger": "rehearsal"}, True), ({"trigger": "scheduled", "virtual": True}, True), ({}, False)],
    ids=["an old history", "by the profile", "a real cluster"],
)
def test_before_a_target_is_chosen_the_profile_says_it(
    tmp_path: Path, started: dict[str, object], rehearsal: bool
) -> None:
    folder = played(tmp_path / "run", **started)
    cut = [one for one in build.passing() if one.seconds < 1]
    cut = build.replacing(cut, lambda e: isinstance(e, RunStarted), **{"trigger": "manual", **started})
    assert summary(build.write(folder, cut)).rehearsal is rehearsal


def test_on_a_mixed_cluster_the_targets_decide(tmp_path: Path) -> None:
    folder = played(tmp_path / "run", OTHER, targets=(build.NODE, OTHER))
    page, data = drawn(folder, "verdict", "outage")
    assert data["verdict"]["virtual"] == "Virtual GPUs in 1 of 2 targets"
    assert "of real GPUs; virtual targets are not counted" in page.text("outage")
    assert not summary(folder).rehearsal


def test_runs_on_virtual_and_on_real_nodes_of_a_cluster_are_no_trend(tmp_path: Path) -> None:
    for day, virtual in ((1, (build.NODE,)), (2, ()), (3, (build.NODE,))):
        folder = played(tmp_path / f"2026000{day}", *virtual)
        lines = (folder / "history.jsonl").read_text().replace("2026-03-03T", f"2026-03-0{day}T")
        (folder / "history.jsonl").write_text(lines)
        render(folder, NOW)
    now = summary(tmp_path / "20260003")
    assert [one.run_id for one in earlier_runs(tmp_path / "20260003", now)] == ["20260001"]
    digest = digest_of(read_catalog(tmp_path), [], datetime(2026, 3, 1, tzinfo=UTC), NOW)
    assert sorted((row.cluster, row.runs) for row in digest.plans) == [
        ("rehearsal", 1),
        ("rehearsal (virtual GPUs)", 2),
    ]
    assert {(one.virtual, one.known) for one in digest.outages} == {(True, 2), (False, 1)}


@pytest.mark.parametrize(
    ("provider", "annotations", "virtual"),
    [
        (f"{VIRTUAL_PROVIDER}rehearsal/gpu-node-1", {}, True),
        ("", {"kwok.x-k8s.io/node": "fake"}, True),
        ("aws:///eu-west-1a/i-0abc", {}, False),
        (None, None, False),
    ],
)
def test_a_node_shows_that_no_machine_is_behind_it(
    provider: str | None, annotations: dict[str, str] | None, virtual: bool
) -> None:
    node = client.V1Node(
        metadata=client.V1ObjectMeta(name="n", annotations=annotations),
        spec=client.V1NodeSpec(provider_id=provider),
        status=client.V1NodeStatus(),
    )
    assert snapshot(node).virtual is virtual


def test_of_several_game_days_it_says_how_many() -> None:
    assert virtual_words([]) == virtual_words([False]) == ""
    assert virtual_words([True, True]) == "virtual GPUs"
    assert virtual_words([True, False, False], "nodes") == "virtual GPUs in 1 of 3 nodes"
