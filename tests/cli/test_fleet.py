"""`gameday fleet` before anything is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cli import run
from gameday.exit_codes import ExitCode


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--slow", "3"], "add --rehearse"),
        (["--rehearse", "--profile", "x.yaml"], "leave out --profile, or --rehearse"),
        (["--rehearse", "--slow", "9"], "raise --nodes, or lower --slow"),
        (["--rehearse", "--load", "1s"], "write 2s to 1h"),
        (["--rehearse", "--load", "soon"], "--load 'soon'"),
        (["--rehearse", "--against", "nowhere"], "no fleet run's folder"),
        (["--profile", "nowhere.yaml"], "cannot read the cluster profile"),
        (["--again", "nowhere"], "no fleet run's folder"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_do(
    arguments: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["fleet", *arguments]) == ExitCode.USAGE
    assert said in " ".join(capsys.readouterr().err.split())
