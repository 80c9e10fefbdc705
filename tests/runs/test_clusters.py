"""The page of several clusters' seasons: a row each, the worst end, and nothing of what a server says is markup."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gameday.exit_codes import ExitCode
from gameday.runs.clusters import ClusterSeason, ClusterSeasons, judged, render_cluster_seasons
from gameday.tasks.outcome_on_page import code_of

NOW = datetime(2026, 11, 26, 10, tzinfo=UTC)


def seasons(*codes: ExitCode, stopped: str = "", why: str = "because") -> ClusterSeasons:
    rows = [
        ClusterSeason(
            cluster=f"c{number}",
            code=code,
            why=why,
            game_days={"Passed": 2, "Failed": number},
            started=NOW,
            ended=NOW + timedelta(minutes=3),
            page=f"http://127.0.0.1:4200/runs/flow-run/{number}",
        )
        for number, code in enumerate(codes)
    ]
    return ClusterSeasons(id="s", plans=(), started=NOW, ended=NOW, clusters=tuple(rows), stopped=stopped)


@pytest.mark.parametrize(
    ("codes", "worst", "why"),
    [
        ("PASSED PASSED", "PASSED", "2 clusters: 2 passed."),
        ("PASSED FAILED", "FAILED", "2 clusters: 1 passed, 1 failed."),
        ("FAILED ABORTED", "ABORTED", "2 clusters: 1 failed, 1 aborted."),
        ("ABORTED UNKNOWN", "UNKNOWN", "2 clusters: 1 aborted, 1 unknown."),
        ("UNKNOWN DIRTY PASSED", "DIRTY", "3 clusters: 1 unknown, 1 dirty, 1 passed."),
        ("PASSED REFUSED", "UNKNOWN", "2 clusters: 1 passed, 1 refused."),
        ("REFUSED", "REFUSED", "1 cluster: 1 refused."),
    ],
)
def test_the_worst_end_is_that_of_all(codes: str, worst: str, why: str) -> None:
    result = seasons(*(ExitCode[code] for code in codes.split())).result
    assert (ExitCode(result.exit_code).name, result.why) == (worst, why)


def test_seasons_that_were_stopped_did_not_pass() -> None:
    result = seasons(ExitCode.PASSED, stopped="SIGTERM received").result
    assert (result.exit_code, result.why) == (3, "1 cluster: 1 passed. Stopped: SIGTERM received.")


@pytest.mark.parametrize(
    ("tags", "state", "began", "code"),
    [
        ("outcome:passed cluster:clean", "Completed", True, 0),
        ("eu-1 outcome:failed cluster:clean", "Failed", True, 1),
        ("outcome:unknown cluster:dirty", "Failed", True, 4),
        ("outcome:refused cluster:clean", "Failed", True, 5),
        ("outcome:aborted cluster:clean", "Cancelled", True, 3),
        ("outcome:good cluster:clean", "Completed", True, 2),
        ("eu-1", "Failed", True, 2),
        ("", "Crashed", True, 2),
        ("", "Cancelled", True, 2),
        ("", "Cancelled", False, 3),
    ],
)
def test_only_a_verdict_is_taken_for_one(tags: str, state: str, began: bool, code: int) -> None:
    found, why = judged(code_of(tags.split()), state, "a sentence", began=began)
    assert found == code
    assert why


def test_the_page_and_the_record_have_a_row_per_cluster(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> [x](javascript:alert(1)) | y"
    made = seasons(ExitCode.PASSED, ExitCode.DIRTY, why=hostile)
    page = render_cluster_seasons(tmp_path / "s", made, NOW).html.read_text()
    assert "2 clusters: 1 passed, 1 dirty." in page
    assert '<a href="http://127.0.0.1:4200/runs/flow-run/1">c1</a>' in page
    assert "3 min" in page
    assert "<script>alert" not in page
    record = json.loads((tmp_path / "s" / "clusters.json").read_text())
    assert (record["format"], record["exit_code"], len(record["clusters"])) == (1, 4, 2)
    assert ClusterSeasons.model_validate(record) == made
    table = made.markdown.split("\n\n")[1].splitlines()
    assert [line.replace("\\|", "").count("|") for line in table] == [7, 7, 7, 7]
    assert "\\[x\\](javascript" in made.markdown
    assert "[c0](http" in table[2]


def test_counts_that_are_not_known_are_not_shown_as_none(tmp_path: Path) -> None:
    made = seasons(ExitCode.PASSED, ExitCode.UNKNOWN)
    unknown = made.clusters[1].model_copy(update={"game_days": None, "ended": None})
    made = made.model_copy(update={"clusters": (made.clusters[0], unknown)})
    assert "| Unknown | not measured | not measured | - |" in made.markdown
    assert "not measured" in render_cluster_seasons(tmp_path, made, NOW).html.read_text()
