"""`gameday league`: one season per detector, in an order that a stop does not lose; none is really played here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gameday.cli.league as cli
from gameday.errors import CommandError, DocumentError
from gameday.exit_codes import ExitCode
from gameday.league.record import LeagueRecord, load_record
from tests.league.builders import OURS, run, season
from tests.report.run_builder import passing

GUEST = "apiVersion: gameday/v1\nkind: Guest\nname: {name}\nversion: v1\ncommand: [{command}]\n"


@pytest.fixture
def document(tmp_path: Path) -> Path:
    (tmp_path / "npd.yaml").write_text(GUEST.format(name="npd", command="sleep, '9'"))
    file = tmp_path / "league.yaml"
    file.write_text(
        "apiVersion: gameday/v1\nkind: League\nname: two\nguests: [ours, npd.yaml]\n"
        "plans: [gpu-fell-off-the-bus, xid-13-application-error]\n"
    )
    return file


class Seasons:
    """Stand-ins of the seasons: their command lines, and the exit codes that a test gives them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *codes: int) -> None:
        self.commands: list[list[str]] = []
        self.codes = list(codes)
        monkeypatch.setattr(cli, "_season", self._played)

    def _played(self, command: list[str]) -> cli._Played:
        self.commands.append(command)
        reports = Path(command[command.index("--reports") + 1])
        code = self.codes.pop(0) if self.codes else 0
        entry = OURS.model_copy(update={"name": reports.name})
        if code == 0:
            names = [one for one in command if one in ("gpu-fell-off-the-bus", "xid-13-application-error")]
            places = [run(reports.parent, entry, "season", name, passing()) for name in names]
            season(reports.parent, entry, "season", *places)
        return cli._Played(code, stopped=code == ExitCode.ABORTED)


def folder_of(reports: Path) -> Path:
    (found,) = reports.glob("league-two-*")
    return found


def test_every_detector_plays_the_same_plans_in_a_season_of_its_own(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seasons, markdown = Seasons(monkeypatch), tmp_path / "league.md"
    assert cli.league(document, reports=tmp_path / "reports", markdown=markdown) == ExitCode.PASSED
    ours, npd = seasons.commands
    for command in seasons.commands:
        assert command[3:6] == ["coverage", "gpu-fell-off-the-bus", "xid-13-application-error"]
        assert command[command.index("--seed") + 1] == "1"
    assert "--guest" not in ours
    assert npd[npd.index("--guest") + 1] == str(document.parent / "npd.yaml")
    folder = folder_of(tmp_path / "reports")
    stored = load_record(folder)
    assert [(one.name, one.version) for one in stored.entries][1] == ("npd", "v1")
    assert stored.ended is not None
    assert "| gpu-fell-off-the-bus |" in markdown.read_text()
    quiet = {one.plan: one.stays_in_service for one in stored.faults}
    assert quiet == {"gpu-fell-off-the-bus": False, "xid-13-application-error": True}


def test_a_stopped_league_goes_on_with_what_is_not_played(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Seasons(monkeypatch, 0, ExitCode.ABORTED)
    assert cli.league(document, reports=tmp_path / "reports") == ExitCode.ABORTED
    folder = folder_of(tmp_path / "reports")
    assert f"gameday league --resume {folder}" in capsys.readouterr().out
    assert load_record(folder).ended is None
    resumed = Seasons(monkeypatch)
    assert cli.league(resume=folder) == ExitCode.PASSED
    assert [Path(command[command.index("--reports") + 1]).name for command in resumed.commands] == ["npd"]
    assert [one.problem for one in load_record(folder).entries] == ["", ""]
    again = Seasons(monkeypatch)
    assert cli.league(resume=folder) == ExitCode.PASSED
    assert again.commands == []


def test_a_rehearsal_that_does_not_start_costs_only_its_own_column(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seasons = Seasons(monkeypatch, ExitCode.REFUSED)
    assert cli.league(document, reports=tmp_path / "reports") == ExitCode.PASSED
    assert len(seasons.commands) == 2
    stored = load_record(folder_of(tmp_path / "reports"))
    assert [one.problem for one in stored.entries] == ["its rehearsal ended with exit code 5", ""]


def test_a_dirty_cluster_is_the_leagues_exit_code_and_what_it_kept_from_being_played_can_go_on(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Seasons(monkeypatch, ExitCode.DIRTY)
    assert cli.league(document, reports=tmp_path / "reports") == ExitCode.DIRTY
    folder = folder_of(tmp_path / "reports")
    assert [one.problem for one in load_record(folder).entries] == ["", ""]
    assert f"gameday league --resume {folder}" in capsys.readouterr().out


def test_what_is_missing_is_refused_before_anything_is_played(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seasons = Seasons(monkeypatch)
    (document.parent / "npd.yaml").write_text(GUEST.format(name="npd", command="no-such-detector"))
    with pytest.raises(CommandError, match=r"take npd\.yaml out"):
        cli.league(document, reports=tmp_path)
    (document.parent / "npd.yaml").write_text(GUEST.format(name="ours", command="sleep"))
    with pytest.raises(CommandError, match="called ours"):
        cli.league(document, reports=tmp_path)
    document.write_text(document.read_text().replace("xid-13-application-error", "xid-13-applicaton-error"))
    with pytest.raises((DocumentError, CommandError)):
        cli.league(document, reports=tmp_path)
    assert seasons.commands == []


@pytest.mark.parametrize("given", [{}, {"again": Path("x"), "resume": Path("x")}])
def test_one_thing_is_asked_at_a_time(given: dict[str, Path]) -> None:
    with pytest.raises(CommandError, match="name the league's file"):
        cli.league(**given)


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="is no league's folder"):
        cli.league(again=tmp_path)
    with pytest.raises(CommandError, match="is no league's folder"):
        cli.league(resume=tmp_path)


def test_a_league_without_plans_plays_every_harmless_plan_of_a_gpu(document: Path) -> None:
    document.write_text("apiVersion: gameday/v1\nkind: League\nname: two\nguests: [ours]\n")
    stored: LeagueRecord = cli._new_record(document)
    names = {one.plan for one in stored.faults}
    assert {"gpu-fell-off-the-bus", "dcgm-double-bit-ecc", "xid-13-application-error"} <= names
    assert not {"node-reboot", "compare-remediations", "hands-off-double-bit-ecc", "gpu-burn"} & names
    assert {one.layer for one in stored.faults} <= {"kernel log", "DCGM cache", "NVML"}


def test_a_signal_reaches_the_season_and_its_end_is_waited_for(tmp_path: Path) -> None:
    said = tmp_path / "said"
    child = (
        "import signal, sys, time\n"
        f"signal.signal(signal.SIGINT, lambda *_: (open({str(said)!r}, 'w').write('undone'), sys.exit(3)))\n"
        f"open({str(said)!r} + '.ready', 'w'); time.sleep(30)\n"
    )
    played = f"from gameday.cli.league import _season; one = _season([sys.executable, '-c', {child!r}])"
    parent = f"import sys; {played}; sys.exit(one.code if one.stopped else 9)"
    process = subprocess.Popen([sys.executable, "-c", parent])
    deadline = time.monotonic() + 20
    while not Path(f"{said}.ready").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(20) == ExitCode.ABORTED
    assert said.read_text() == "undone"
