"""`gameday run`, `report` and `reap` where something they need is missing, wrong or gone."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest

from gameday.cli import run
from gameday.cli.console import console
from gameday.cli.game_day import _after
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.ledger.entries import DeletePod, Entry
from gameday.ledger.ledger import Unreadable
from gameday.reaper.reap import Reaped, ReapResult
from gameday.values.results import Cleanliness
from tests.support.ports import free_ports

Capture = pytest.CaptureFixture[str]
GONE = RuntimeError("Failed to reach API at http://127.0.0.1:9/api/")


@pytest.fixture
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("GAMEDAY_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def nobody(tmp_path: Path) -> Path:
    """The profile of a cluster whose API server is down."""
    (tmp_path / "kubeconfig").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: a\n"
        f"clusters: [{{name: a, cluster: {{server: 'http://127.0.0.1:{free_ports(1)[0]}'}}}}]\n"
        "users: [{name: a, user: {token: secret-of-mine}}]\n"
        "contexts: [{name: a, context: {cluster: a, user: a}}]\n"
    )
    path = tmp_path / "profile.yaml"
    servers = "".join(f"{name}: {{url: 'http://127.0.0.1:9'}}\n" for name in ("prometheus", "alertmanager", "loki"))
    path.write_text(f"kubeconfig: {tmp_path / 'kubeconfig'}\n{servers}")
    return path


@pytest.mark.usefixtures("no_environment")
@pytest.mark.parametrize("command", [["run", "gpu-fell-off-the-bus"], ["reap"]])
def test_no_profile_and_a_bad_one_are_usage(command: list[str], tmp_path: Path, capsys: Capture) -> None:
    reports = ["--reports", str(tmp_path)] if command[0] == "run" else []
    assert run([*command, *reports]) == ExitCode.USAGE
    said = capsys.readouterr().err
    assert all(word in said for word in ("--profile FILE", "docs/profile.md", "gameday rehearse"))
    assert said.count("\n") == 1
    assert run([*command, *reports, "--profile", str(tmp_path / "none.yaml")]) == ExitCode.USAGE
    assert "none.yaml: cannot be read: No such file or directory" in capsys.readouterr().err
    (tmp_path / "bad.yaml").write_text("prometeus: {}\n")
    assert run([*command, *reports, "--profile", str(tmp_path / "bad.yaml")]) == ExitCode.USAGE
    assert "did you mean prometheus?" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.usefixtures("no_environment")
def test_reap_without_an_api_server_is_unknown_and_prints_no_secret(nobody: Path, capsys: Capture) -> None:
    assert run(["reap", "--profile", str(nobody)]) == ExitCode.UNKNOWN
    err = capsys.readouterr().err
    assert "refused" in err
    assert "secret-of-mine" not in err


def reaped(*states: Cleanliness) -> ReapResult:
    entry = Entry(id="e", seq=0, act="act", node="n", undo=DeletePod(pod="p"), expires=datetime(2030, 1, 1, tzinfo=UTC))
    return ReapResult(reaped=tuple(Reaped("run", entry, state, ()) for state in states))


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (ReapResult(), ExitCode.PASSED),
        (reaped(Cleanliness.CLEAN), ExitCode.PASSED),
        (reaped(Cleanliness.CLEAN, Cleanliness.UNKNOWN), ExitCode.UNKNOWN),
        (ReapResult(unreadable=(Unreadable("gameday-x", "", "no run"),)), ExitCode.UNKNOWN),
        (reaped(Cleanliness.UNKNOWN, Cleanliness.DIRTY), ExitCode.DIRTY),
    ],
)
def test_reap_ends_as_a_run_would_that_left_the_same(
    result: ReapResult, code: ExitCode, nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gameday.reaper.reap.reap", lambda *_, **__: result)
    assert run(["reap", "--profile", str(nobody), "--reports", str(nobody.parent)]) == code


@pytest.mark.parametrize(("flags", "said"), [([], []), (["--scheduled"], ["cronjob"])])
def test_only_the_scheduled_reaper_says_which_packages_it_has(
    flags: list[str], said: list[str], nobody: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announced: list[str] = []
    monkeypatch.setattr("gameday.reaper.reap.reap", lambda *_, **__: ReapResult())
    monkeypatch.setattr("gameday.reaper.packages.announce_packages", lambda _, reaper: announced.append(reaper))
    assert run(["reap", "--profile", str(nobody), *flags]) == ExitCode.PASSED
    assert announced == said


def test_reap_says_why_it_failed_and_where(nobody: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    (left,) = reaped(Cleanliness.UNKNOWN).reaped
    result = ReapResult((dataclasses.replace(left, evidence=("a second agent left no message",)),))
    monkeypatch.setattr("gameday.reaper.reap.reap", lambda *_, **__: result)
    run(["reap", "--profile", str(nobody)])
    assert "run run: act: unknown (node n; a second agent left no message)" in capsys.readouterr().out


def test_reap_renews_the_reports_of_the_dead_and_names_those_it_cannot_find(
    nobody: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    (here,) = reaped(Cleanliness.CLEAN).reaped
    result = ReapResult((here, dataclasses.replace(here, run_id="elsewhere")))
    monkeypatch.setattr("gameday.reaper.reap.reap", lambda *_, **__: result)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "history.jsonl").touch()
    assert run(["reap", "--profile", str(nobody), "--reports", str(tmp_path)]) == ExitCode.PASSED
    out = capsys.readouterr().out
    assert f"report: {tmp_path / 'run' / 'report.html'}" in out
    assert (tmp_path / "run" / "report.html").is_file()
    assert f"run elsewhere has no history in {tmp_path}" in out


@pytest.mark.parametrize("make", [lambda folder: None, lambda folder: folder.mkdir()])
def test_report_of_what_is_no_run(make: object, tmp_path: Path, capsys: Capture) -> None:
    folder = tmp_path / "run"
    make(folder)  # type: ignore[operator]
    assert run(["report", str(folder)]) == ExitCode.USAGE
    assert "holds no history.jsonl; give the folder of a run" in capsys.readouterr().err


@pytest.mark.parametrize("history", [b"", b"\xff\x00\n" * 40, b'{"half a rec'])
def test_report_of_a_history_that_says_nothing_is_unknown(history: bytes, tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "history.jsonl").write_bytes(history)
    assert run(["report", str(tmp_path)]) == ExitCode.UNKNOWN
    assert capsys.readouterr().out == f"{tmp_path / 'report.html'}\n"
    assert (tmp_path / "report.html").stat().st_size > 0


def test_report_where_it_cannot_be_written(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    (tmp_path / "report.html").mkdir()
    assert run(["report", str(tmp_path)]) == ExitCode.USAGE
    assert "report.html: is a directory" in capsys.readouterr().err


@pytest.mark.parametrize("error", [GONE, httpx.ConnectError("refused")])
def test_prefect_gone_before_the_run_began_is_a_refusal(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    with pytest.raises(CommandError, match=r"the Prefect server .* does not answer; start it, or `unset") as said:
        _after(error, console(), tmp_path)
    assert said.value.code == ExitCode.REFUSED


def test_prefect_gone_in_the_middle_still_leaves_the_report(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    (tmp_path / "history.jsonl").write_bytes(b"")
    assert _after(GONE, console(), tmp_path) == ExitCode.UNKNOWN
    assert "does not answer" in capsys.readouterr().out
    assert (tmp_path / "report.html").is_file()


def test_a_bug_in_the_middle_of_a_run_leaves_the_report_and_is_raised(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"")
    with pytest.raises(KeyError):
        _after(KeyError("ours"), console(), tmp_path)
    assert (tmp_path / "report.html").is_file()


def test_a_reader_that_left_does_not_stop_what_runs() -> None:
    script = (
        "import sys; from gameday.cli.console import console; out = console();"
        "out.print('nobody reads this'); out.print('nor this'); sys.exit(7 if out.quiet else 1)"
    )
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run([sys.executable, "-c", script], stdout=write, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(write)
    assert (done.returncode, done.stderr) == (7, b"")


def test_a_pipe_is_wide_and_a_person_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert console().width == 160
    monkeypatch.setenv("COLUMNS", "60")
    assert console().width == 60
