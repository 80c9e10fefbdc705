"""A whole random season on the rehearsal cluster, as a person would run it, and command lines that cannot be played."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path

import pytest
from prefect.settings import temporary_settings

from gameday import cli
from gameday.flows.season import season
from gameday.history.events import FaultInjected, TargetsChosen
from gameday.history.journal import read_history
from tests.game_days.conftest import QUICK, QUIET, Arena
from tests.game_days.test_season import plan_file
from tests.support.prefect_api import client_settings

# Seed 14 draws three beginnings in the first 30 s, the time in which a game-day that takes about 51 s may begin.
_SEED, _DRAWN = ["--seed", "14"], ["--budget", "81s", "--mean-gap", "8s", "--at-once", "3"]


def said_by(arena: Arena, *arguments: str) -> str:
    """The command's output, on the arena's cluster and Prefect server; it passed."""
    said, settings = io.StringIO(), {**client_settings(arena.cluster.prefect_client), **QUIET}
    with temporary_settings(settings), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = cli.run(["season", "--random", *arguments, "--profile", str(arena.cluster.profile)])
    assert code == 0, said.getvalue()
    return said.getvalue()


@pytest.mark.gameday
@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_random_season_plays_what_its_dry_run_says_and_leaves_nothing_unsaid(
    clean_arena: Arena, tmp_path: Path
) -> None:
    plans = [
        plan_file(tmp_path, name, QUICK, expect__workloads__running_pods="any") for name in ("one", "two", "three")
    ]
    foreseen = said_by(clean_arena, *plans, *_SEED, *_DRAWN, "--dry-run")
    said = said_by(clean_arena, *plans, *_SEED, *_DRAWN, "--reports", str(tmp_path / "r"))
    (file,) = (tmp_path / "r").glob("season-*/coverage.json")
    covered = json.loads(file.read_bytes())
    played = [one for one in covered["drawn"] if one["outcome"] == "passed"]
    assert len(played) == 3
    for one in played:
        history = read_history(tmp_path / "r" / one["run_id"] / "history.jsonl")
        assert [target.node for target in history.of(TargetsChosen)[0].targets] == one["targets"]
        assert {fault.target.node for fault in history.of(FaultInjected)} == set(one["targets"])
        assert one["began_s"] > one["at_s"]
    others = [one for one in covered["drawn"] if one not in played]
    assert {one["outcome"] for one in others} == {"not played"}
    assert all("would pass the end of the budget" in one["why"] for one in others)
    page, again = (file.parent / "coverage.html").read_text(), covered["record"]["command"]
    assert f"{len(covered['drawn'])} drawn, 3 played, {len(others)} not." in page
    assert again in page
    assert again in said
    rows = [(one["plan"], one["targets"][0]) for one in played]
    for foretold in (foreseen, said_by(clean_arena, *plans, *_SEED, *_DRAWN, "--dry-run")):
        assert [tuple(line.split()[-2:]) for line in foretold.splitlines() if " gpu-node-" in line] == rows


def test_the_form_of_prefect_takes_the_budget_as_plans_write_durations() -> None:
    shown = season.parameters.properties
    assert shown["budget"]["anyOf"][0]["type"] == shown["mean_gap"]["anyOf"][0]["type"] == "string"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "add --random to draw game-days, or play each plan once: gameday coverage"),
        (["--random"], "--budget 1h"),
        (["--random", "--budget", "soon"], "--budget 'soon': a duration is written with its unit"),
        (["--random", "--budget", "1h", "--rehearse", "--profile", "p.yaml"], "--rehearse brings its own cluster"),
        (["--random", "--budget", "1h", "--rehearse", "powr-cap"], "did you mean power-cap?"),
        (["--random", "--budget", "1h", "--profile", "nowhere.yaml"], "--rehearse needs no profile"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_do(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["season", *arguments]) == 64
    assert said in capsys.readouterr().err


def test_a_budget_that_is_too_small_is_refused_before_anything_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert cli.run(["season", "--random", "--budget", "30s", "--rehearse"]) == 5
    said = capsys.readouterr()
    assert "--budget 60s or longer" in said.err
    assert "starting a cluster" not in said.out
    assert list(tmp_path.iterdir()) == []
