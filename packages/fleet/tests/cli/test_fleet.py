"""`gameday fleet` before anything is started."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday_rehearsal.cli.embedded_cluster import Embedded
from gameday_rehearsal.slow_gpus import SlowGpu, choose_slow


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slow", "3"], "add --rehearse"),
        (["--rehearse", "--profile", "x.yaml"], "leave out --profile, or --rehearse"),
        (["--rehearse", "--slow", "9"], "raise --nodes, or lower --slow"),
        (["--rehearse", "--load", "1s"], "write 2s to 1h"),
        (["--rehearse", "--load", "soon"], "--load 'soon'"),
        (["--rehearse", "--against", "nowhere"], "not a fleet run's folder"),
        (["--profile", "nowhere.yaml"], "cannot use the cluster profile"),
        (["--again", "nowhere"], "not a fleet run's folder"),
        (["--unlabel", "--rehearse"], "--unlabel measures nothing"),
        (["--unlabel", "--profile", "nowhere.yaml"], "cannot use the cluster profile"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_do(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["fleet", *arguments]) == ExitCode.USAGE
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_rehearsal_makes_the_chosen_gpus_slow_and_says_so_at_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[tuple[SlowGpu, ...]] = []
    commands: list[str] = []

    @contextmanager
    def embedded(*_: object, slow_gpus: tuple[SlowGpu, ...], **__: object) -> Iterator[Embedded]:
        started.append(slow_gpus)
        yield Embedded(SimpleNamespace(profile=None), slow_gpus)

    def probe(*arguments: object) -> ExitCode:
        commands.append(str(arguments[-1]))
        return ExitCode.FAILED

    monkeypatch.setattr("gameday_rehearsal.cli.virtual_clusters.start_embedded", embedded)
    monkeypatch.setattr("gameday_fleet.cli.fleet._probe", probe)
    argv = ["fleet", "--rehearse", "--nodes", "6", "--gpus", "4", "--slow", "2", "--seed", "9"]
    assert run([*argv, "--reports", str(tmp_path / "r")]) == ExitCode.FAILED
    assert started == [choose_slow(2, 6, 4, seed=9)]
    assert "--slow 2 --seed 9" in commands[0]
    said = " ".join(capsys.readouterr().out.split())
    assert all(f"{one.node} GPU {one.gpu}" in said for one in started[0])


def test_the_same_seed_makes_the_same_gpus_slow_each_on_a_node_of_its_own() -> None:
    chosen = choose_slow(3, 8, 8, seed=1)
    assert chosen == choose_slow(3, 8, 8, seed=1) != choose_slow(3, 8, 8, seed=2)
    assert len({one.node for one in chosen}) == 3
    assert [SlowGpu.parse(str(one)) for one in chosen] == list(chosen)
    assert all(0.67 <= one.share <= 0.9 for one in chosen)
