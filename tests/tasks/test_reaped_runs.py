"""A killed run notifies nobody: its reaper continues its history, renders it, and notifies people."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import gameday.flows.hooks
import gameday.flows.reaper
import gameday.flows.season
import gameday.tasks.publish
import gameday.tasks.reaped_runs
from gameday.cluster.profile import ClusterProfile
from gameday.errors import RefusedError
from gameday.flows.game_day import game_day
from gameday.history.events import RECORD, FaultUndone, IntentRecorded, Record, RunEnded
from gameday.history.journal import read_history
from gameday.ledger.entries import DeletePod, Entry
from gameday.reaper.reap import STRAY, Reaped, ReapResult
from gameday.report.message import Message
from gameday.report.run_folder import load_run_folder
from gameday.report.summary import read_summary
from gameday.runs.comparison import read_comparison
from gameday.tasks.reaped_runs import notify_reaped, report_reaped
from gameday.values.results import Cleanliness
from tests.report.run_builder import NODE, cut_off, passing, write
from tests.runs.comparison_builders import arm, record, write_record

RUN = "r1"
HERE: Any = {"url": "http://127.0.0.1:1"}
PROFILE = ClusterProfile(prometheus=HERE, alertmanager=HERE, loki=HERE, notify=("custom-webhook/oncall",))


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a run that was killed with its fault in."""
    folder = write(tmp_path / RUN, cut_off(passing(), 12.5))
    assert load_run_folder(folder).result.cleanliness is Cleanliness.UNKNOWN
    return folder


@pytest.fixture
def notified(monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    messages: list[Message] = []
    for module in (gameday.tasks.publish, gameday.tasks.reaped_runs):
        monkeypatch.setattr(module, "notify", lambda profile, content: messages.append(content))
    return messages


def reaped(folder: Path, found: Cleanliness, *, before: Cleanliness | None = None) -> ReapResult:
    """A reap of all that the run in this folder had left open."""
    history = read_history(folder / "history.jsonl")
    undone = {one.intent for one in history.of(FaultUndone)}
    ids = [one.intent for one in history.of(IntentRecorded) if one.intent not in undone] or ["i1"]
    return ReapResult(tuple(of(id, found, before, folder.name) for id in ids))


def of(id: str, found: Cleanliness, before: Cleanliness | None = None, run_id: str = RUN) -> Reaped:
    later, undo = datetime(2030, 1, 1, tzinfo=UTC), DeletePod(pod="p")
    entry = Entry(id=id, seq=0, act="put it in", node=NODE, undo=undo, expires=later, settled=before)
    return Reaped(run_id, entry, found, ("read after: nothing",))


def test_a_reaped_runs_history_records_it_and_its_report_is_renewed(killed: Path, notified: list[Message]) -> None:
    assert report_reaped(PROFILE, reaped(killed, Cleanliness.CLEAN), killed.parent) == []
    assert {one.by for one in read_history(killed / "history.jsonl").of(FaultUndone)} >= {"reaper"}
    assert load_run_folder(killed).result.cleanliness is Cleanliness.CLEAN
    assert (killed / "report.html").is_file()
    summary = read_summary(killed)
    assert summary is not None
    assert summary.cleanliness is Cleanliness.CLEAN
    assert len(notified) == 1


@pytest.mark.slow
def test_a_reaped_game_day_of_a_comparison_renews_the_published_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gameday.tasks.publish, "show_page", lambda *_: None)
    folder = write_record(tmp_path / "reports", record(arm("a"), arm("b")))
    killed = write(folder / "arms-1-a", cut_off(passing(), 12.5))
    profile = PROFILE.model_copy(update={"publish_to": f"file://{tmp_path}/out", "notify": ()})
    assert report_reaped(profile, reaped(killed, Cleanliness.CLEAN), tmp_path / "reports") == []
    published = read_comparison(tmp_path / "out" / folder.name)
    assert [run.outcome is None for arm in published.arms for run in arm.runs] == [False, True]
    assert (tmp_path / "out" / folder.name / killed.name / "report.html").is_file()


def test_a_comparisons_own_reaped_ledger_renews_its_page(tmp_path: Path) -> None:
    folder = write_record(tmp_path, record(arm("a"), arm("b")))
    lab_settings = ReapResult((of("i1", Cleanliness.CLEAN, run_id=folder.name),))
    assert report_reaped(PROFILE, lab_settings, tmp_path) == []
    assert (folder / "comparison.html").is_file()


def test_a_run_that_ended_in_doubt_is_clean_once_that_is_proved(tmp_path: Path, notified: list[Message]) -> None:
    doubted = cut_off(passing(), 12.5)
    folder = write(tmp_path / RUN, doubted)
    with (folder / "history.jsonl").open("ab") as history:
        event = RunEnded(cleanliness=Cleanliness.UNKNOWN)
        record = Record(seq=len(doubted), at=datetime(2026, 1, 1, tzinfo=UTC), monotonic=1, boot="b", event=event)
        history.write(RECORD.dump_json(record) + b"\n")
    report_reaped(PROFILE, reaped(folder, Cleanliness.CLEAN), tmp_path)
    assert load_run_folder(folder).result.cleanliness is Cleanliness.CLEAN


@pytest.mark.parametrize("state", [Cleanliness.UNKNOWN, Cleanliness.DIRTY])
def test_an_unchanged_finding_of_an_earlier_reaper_is_not_notified_again(
    killed: Path, notified: list[Message], state: Cleanliness
) -> None:
    before = (killed / "history.jsonl").read_bytes()
    notify_reaped(PROFILE, reaped(killed, state, before=state), killed.parent)
    assert (killed / "history.jsonl").read_bytes() == before
    assert notified == []


def test_a_late_pod_of_a_clean_run_is_not_notified(killed: Path, notified: list[Message]) -> None:
    notify_reaped(PROFILE, ReapResult((of(STRAY, Cleanliness.CLEAN),)), killed.parent)
    assert not (killed / "report.html").exists()
    assert notified == []


@pytest.mark.parametrize(
    ("found", "subject"),
    [
        (Cleanliness.CLEAN, "run r1 died and was reaped"),
        (Cleanliness.DIRTY, "CLUSTER DIRTY: run r1 died and was reaped"),
    ],
)
def test_a_reaped_run_whose_folder_is_elsewhere_is_notified(
    tmp_path: Path, notified: list[Message], found: Cleanliness, subject: str
) -> None:
    notify_reaped(PROFILE, ReapResult((of("i1", found),)), tmp_path / "elsewhere")
    (said,) = notified
    assert said.subject == subject
    assert "put it in" in said.body


def test_a_history_that_cannot_be_written_costs_the_others_nothing(
    killed: Path, notified: list[Message], caplog: pytest.LogCaptureFixture
) -> None:
    unwritable = write(killed.parent / "r2", cut_off(passing(), 12.5))
    (unwritable / "report.html").mkdir()
    result = ReapResult((of("i1", Cleanliness.CLEAN, run_id="r2"), *reaped(killed, Cleanliness.CLEAN).reaped))
    gameday.tasks.publish.OUTSIDE_PREFECT.addHandler(caplog.handler)
    try:
        report_reaped(PROFILE, result, killed.parent)
    finally:
        gameday.tasks.publish.OUTSIDE_PREFECT.removeHandler(caplog.handler)
    assert "the report of run r2 could not be rendered again" in caplog.text
    assert (killed / "report.html").is_file()


@pytest.mark.slow
def test_prefects_hook_notifies_of_undos_after_its_flow(
    killed: Path, notified: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = reaped(killed, Cleanliness.CLEAN)
    monkeypatch.setattr(gameday.flows.hooks, "load_profile", lambda path: PROFILE)
    monkeypatch.setattr(gameday.flows.hooks, "Kubernetes", lambda profile: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(gameday.flows.hooks, "reap", lambda kubernetes, flow_run: result)
    monkeypatch.setattr(gameday.flows.hooks, "flow_run_logger", lambda *_: gameday.tasks.publish.OUTSIDE_PREFECT)
    given: Any = SimpleNamespace(id="f", parameters={"reports": str(killed.parent)})
    gameday.flows.hooks.reap_flow_run(game_day, given, None)  # type: ignore[arg-type]
    assert (killed / "report.html").is_file()
    assert len(notified) == 1


@pytest.mark.slow
def test_the_reaper_flow_notifies_of_its_undos(
    killed: Path, notified: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = reaped(killed, Cleanliness.CLEAN)
    monkeypatch.setattr(gameday.flows.reaper, "load_profile", lambda path: PROFILE)
    monkeypatch.setattr(gameday.flows.reaper, "Kubernetes", lambda profile: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(gameday.flows.reaper, "reap", lambda kubernetes: result)
    monkeypatch.setattr(gameday.flows.reaper, "report_reaped_elsewhere", lambda kubernetes, reports: None)
    monkeypatch.setattr(gameday.flows.reaper, "get_run_logger", lambda: gameday.tasks.publish.OUTSIDE_PREFECT)
    announced: list[str] = []
    monkeypatch.setattr(gameday.flows.reaper, "announce_packages", lambda _, reaper: announced.append(reaper))
    state = gameday.flows.reaper.reaper.fn(reports=str(killed.parent))
    assert state.is_completed()
    assert announced == ["flow"]
    assert (killed / "report.html").is_file()
    assert len(notified) == 1


def test_a_season_notifies_of_its_undos_even_if_it_cannot_begin_for_them(
    killed: Path, notified: list[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def refused(
        id: str, profile: ClusterProfile, on_reaped: Callable[[ReapResult], object], chosen: object
    ) -> Iterator[None]:
        on_reaped(reaped(killed, Cleanliness.UNKNOWN))
        raise RefusedError("not proved undone")
        yield

    monkeypatch.setattr(gameday.flows.season, "load_cluster", lambda profile: PROFILE)
    monkeypatch.setattr(gameday.flows.season, "open_season", refused)
    state = gameday.flows.season.season.fn(reports=str(killed.parent))
    assert state.name == "Failed"
    assert (killed / "report.html").is_file()
    assert len(notified) == 1
