"""No report says what its history or its cluster contradicts: of a run that ended, or was looked at, at any instant."""

from __future__ import annotations

import html
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from gameday.cli.digest import digest, index, prune
from gameday.cli.report import report
from gameday.cli.verdicts import print_result
from gameday.errors import CommandError, RefusedError
from gameday.history.events import Event, FaultInjected, RunEnded
from gameday.reaper.histories import describe_reap, note_reaped
from gameday.reaper.reap import reap
from gameday.report.junit import junit
from gameday.report.run_markdown import run_markdown
from gameday.run.run import Run
from gameday.runs.catalog import read_catalog
from gameday.runs.digest import digest_of
from tests.report.page import NOW, Page
from tests.scripted.claims import Looked, false_sentences, look
from tests.support.scripted import game_day
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.game_day import OnWrite, play_on
from tests.support.scripted.plans import QUICK, loaded
from tests.support.scripted.script import Script
from tests.support.scripted.wire import Moment

PLAN = loaded(QUICK)
HEARD_LATE = replace(Script.as_expected(PLAN.plan), latency_s=0.4)
"""The fault is in for so long before its run hears of it."""
INSTANTS = (5.0, 6.1, 6.7, 7.05, 14.0)
"""Seconds of the clock: the fault goes in at 6.5, its run hears of it at 6.95, and takes it out from 11 on."""

Stop = Callable[[ScriptedCluster, Run], object]
After = Callable[[ScriptedCluster, Path], ScriptedCluster]


class Cancelled(BaseException):
    """The exception of an engine that cancels or suspends a flow."""


def throw(error: BaseException) -> object:
    raise error


WAYS: dict[str, Stop] = {
    "aborted": lambda cluster, run: run.record.abort.request("operator", "you pressed Ctrl-C"),
    "by a guardrail": lambda cluster, run: run.record.abort.request("guard", "the node is gone"),
    "refused": lambda cluster, run: run.record.abort.stop_with(RefusedError("it is frozen", "")),
    "crashed": lambda cluster, run: throw(RuntimeError("a bug")),
    "cancelled": lambda cluster, run: throw(Cancelled()),
    "killed": lambda cluster, run: cluster.kill(),
}


def stopped(way: str, at_s: float, reports: Path, after: After | None = None) -> Looked:
    """Play a game-day that something stops at an instant, and look at its report."""
    cluster = ScriptedCluster(HEARD_LATE)
    runs: list[Run] = []

    def act(run: Run) -> None:
        runs.append(run)
        game_day.steps(run)

    def stop() -> None:
        if runs and not run_is_over(runs[0].record.folder):
            WAYS[way](cluster, runs[0])

    cluster.clock.at(at_s, stop)
    with suppress(RuntimeError, Cancelled):
        play_on(cluster, PLAN, reports=reports, act=act)
    (folder,) = [path for path in reports.iterdir() if (path / "history.jsonl").is_file()]
    runs[0].record.journal.close()
    if after:
        cluster = after(cluster, folder)
    return look(folder, was_in=cluster.world.struck_at is not None, is_in=bool(cluster.faults_in))


def run_is_over(folder: Path) -> bool:
    return b'"kind":"run_ended"' in (folder / "history.jsonl").read_bytes()


@pytest.mark.parametrize("at_s", INSTANTS)
@pytest.mark.parametrize("way", list(WAYS))
def test_a_run_that_was_stopped(way: str, at_s: float, reports: Path) -> None:
    assert false_sentences(stopped(way, at_s, reports)) == []


@pytest.mark.parametrize("at_s", INSTANTS)
def test_a_run_that_was_killed_and_reaped(at_s: float, reports: Path) -> None:
    def reaped(cluster: ScriptedCluster, folder: Path) -> ScriptedCluster:
        alone = ScriptedCluster.from_snapshot(cluster.snapshot())
        kubernetes = alone.kubernetes("gameday-reaper")
        result = reap(kubernetes)
        kubernetes.close()
        note_reaped(folder, result, describe_reap("the reaper", result, folder.name), alone.clock)
        return alone

    found = stopped("killed", at_s, reports, reaped)
    assert false_sentences(found) == []
    assert found.was_in == found.has(FaultInjected)


def test_a_run_that_still_runs_and_one_that_was_killed_at_every_third_record(reports: Path) -> None:
    cluster, dead = ScriptedCluster(HEARD_LATE), reports / "dead"
    wrong: list[str] = []

    def at_record(folder: Path, number: int, event: Event) -> None:
        if number % 3 == 0 and not isinstance(event, RunEnded):
            shutil.rmtree(dead, ignore_errors=True)
            shutil.copytree(folder, dead)
            for one in (folder, dead):
                at = look(one, was_in=cluster.world.struck_at is not None, is_in=bool(cluster.faults_in))
                assert at.run.result.running is (one is folder)
                wrong.extend(false_sentences(at))

    play_on(cluster, PLAN, reports=reports, on_write=at_each(reports, at_record))
    assert wrong == []


def test_no_page_over_runs_judges_one_that_still_runs(reports: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []

    def at_record(folder: Path, number: int, event: Event) -> None:
        if isinstance(event, FaultInjected):
            assert digest(reports) == 0
            assert index(reports) == 0
            assert prune(reports, keep=1, days=0, delete=True) == 0
            with pytest.raises(CommandError, match="It is still running: the step 'inject' began at"):
                report(folder)
            assert {path.name for path in folder.iterdir()} == {"history.jsonl", "plan.json", "plan.yaml"}
            said.append(f"quick ({folder.name}), since 2026-03-03 09:00:00 UTC")

    played = play_on(ScriptedCluster(HEARD_LATE), PLAN, reports=reports, on_write=at_each(reports, at_record))
    printed = " ".join(capsys.readouterr().out.split())
    assert "No game-day has ended in this window; 1 still runs." in printed
    assert f"still running: {said[0]}" in printed
    assert f"stays {played.folder.name}: it is still running" in printed
    for page in ("digest.html", "index.html"):
        text = Page((reports / page).read_text()).text()
        assert said[0] in text
        assert not [word for word in ("killed", "crashed", "Not proved clean", "without a verdict") if word in text], (
            page
        )
    assert [(run.summary.run_id, run.summary.outcome) for run in read_catalog(reports).runs] == [
        (played.folder.name, "passed")
    ]


@pytest.mark.parametrize("at_s", [0.5, 6.7])
def test_every_output_has_the_sentence_of_the_first_screen(
    at_s: float, reports: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = stopped("aborted", at_s, reports).run
    (folder,) = reports.iterdir()
    meanwhile = "before any fault went in" if at_s < 1 else "while the fault went in; it is out again"
    why = f"Aborted by operator: you pressed Ctrl-C {meanwhile}."
    assert run.result.why == why
    print_result(Console(width=200), folder)
    (listed,) = digest_of(read_catalog(reports), [], NOW - timedelta(days=30), NOW).plans
    told = json.loads((folder / "report.json").read_text())
    outputs = [capsys.readouterr().out, junit(run).decode(), run_markdown(run, folder, None).replace("\\", "")]
    outputs += [told["result"]["why"], told["summary"]["why"], listed.why]
    assert [why in " ".join(html.unescape(one).split()) for one in outputs] == [True] * len(outputs)


@pytest.mark.slow
@pytest.mark.parametrize("way", list(WAYS))
def test_a_run_that_was_stopped_at_any_fifth_of_a_second(way: str, reports: Path) -> None:
    for number in range(1, 105):
        assert false_sentences(stopped(way, number / 5 + 0.01, reports / str(number))) == [], number / 5


def at_each(reports: Path, at_record: Callable[[Path, int, Event], None]) -> OnWrite:
    """Return what is called after each record of the only run there that has no report."""
    written: list[Event] = []

    def on_write(event: Event, moment: Moment) -> None:
        if moment == "after":
            written.append(event)
            (folder,) = [path for path in reports.iterdir() if path.name.startswith("scripted-")]
            at_record(folder, len(written), event)

    return on_write
