"""`gameday coverage` and the season's form: what they take and what they refuse."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday import cli
from gameday.flows.season import season


def test_the_prefect_form_takes_a_duration_as_plans_write_it() -> None:
    assert season.parameters.properties["within"]["anyOf"][0]["type"] == "string"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--within", "soon"], "a duration is written with its unit, like 60s, 5m or 1m30s"),
        (["--rehearse", "no-such-plan"], "there is no such file, and no shipped plan of this name"),
        (["--rehearse", "--profile", "p.yaml"], "--rehearse brings its own cluster"),
        (["--again", "nowhere"], "nowhere is no season's folder: No such file or directory"),
        (["--profile", "nowhere.yaml"], "--rehearse needs no profile"),
    ],
)
def test_a_wrong_command_line_is_answered_with_what_to_do(
    arguments: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.run(["coverage", *arguments]) == 64
    assert said in capsys.readouterr().err
