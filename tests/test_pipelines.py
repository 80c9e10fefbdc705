"""The example pipelines: their commands are real, a red game-day ends the job red, and its report is kept."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.plan.catalogue import shipped_plans
from tests.cli.accepted import accept

ROOT = Path(__file__).resolve().parents[1]
FILES = {path.stem: path for path in (ROOT / "examples" / "pipelines").iterdir()}
GITHUB, GITLAB = (YAML(typ="safe", pure=True).load(FILES[name]) for name in ("github-actions", "gitlab-ci"))


def _scripts(job: dict[str, Any]) -> list[str]:
    """Return the job's lines of shell, the steps' in GitHub's form and the scripts' in GitLab's."""
    steps = [step["run"] for step in job.get("steps", []) if "run" in step]
    return [*steps, *job.get("script", []), *job.get("after_script", [])]


JOBS = {
    **{f"github {name}": job for name, job in GITHUB["jobs"].items()},
    **{f"gitlab {name}": GITLAB[name] for name in ("rehearse", "staging")},
}
LINES = [line for job in JOBS.values() for line in _scripts(job)]
COMMANDS = [line for line in LINES if "gameday " in line]
PREFIX = re.compile(r"^(exec |\.venv/bin/)?(?=gameday )")


@pytest.mark.parametrize("line", COMMANDS)
def test_the_command_line_takes_each_command(line: str) -> None:
    assert accept(PREFIX.sub("", line)) in {"validate", "rehearse", "export", "doctor", "run", "reap"}


def test_a_command_that_is_not_there_would_be_found() -> None:
    with pytest.raises(Exception, match="No such option: --report"):
        accept("gameday rehearse gpu-hot --report out")


@pytest.mark.parametrize("line", LINES)
def test_a_shell_reads_each_line(line: str) -> None:
    assert subprocess.run(["bash", "-n", "-c", line], check=False).returncode == 0


@pytest.mark.parametrize("name", FILES)
def test_nothing_swallows_an_exit_code(name: str) -> None:
    text = FILES[name].read_text(encoding="utf-8")
    assert [word for word in ("|| true", "|| :", "continue-on-error", "allow_failure", "set +e") if word in text] == []
    assert not any(";" in line or "|" in line for line in COMMANDS)


@pytest.mark.parametrize("job", JOBS)
def test_each_job_plays_a_game_day_and_keeps_its_folder_whatever_came_of_it(job: str) -> None:
    played = [line for line in _scripts(JOBS[job]) if re.search(r"gameday (rehearse|run) .*--reports out", line)]
    assert len(played) == 1
    kept = JOBS[job].get("artifacts")
    if kept is None:
        (step,) = (step for step in JOBS[job]["steps"] if "upload-artifact" in step.get("uses", ""))
        assert step["if"] == "always()"
        assert step["with"]["path"] == "out"
    else:
        assert (kept["when"], kept["paths"]) == ("always", ["out"])


def test_the_rehearsed_plans_are_shipped() -> None:
    (gitlab,) = GITLAB["rehearse"]["parallel"]["matrix"]
    assert gitlab["PLAN"] == GITHUB["jobs"]["rehearse"]["strategy"]["matrix"]["plan"]
    assert set(gitlab["PLAN"]) <= set(shipped_plans())


def test_a_change_of_rules_or_plans_starts_the_rehearsal() -> None:
    # YAML 1.2 has no `on` that means true; GitHub's own reader has none either.
    watched = GITHUB["on"]["pull_request"]["paths"]
    assert [path for path in watched if not (ROOT / path.removesuffix("/**")).is_dir()] == []
    (rule,) = GITLAB["rehearse"]["rules"]
    assert [path.removesuffix("/*") for path in rule["changes"]] == watched


def test_what_a_person_types_never_becomes_a_part_of_a_script() -> None:
    assert [line for line in LINES if "${{" in line] == []


def test_staging_is_started_by_hand_and_one_at_a_time() -> None:
    assert GITHUB["jobs"]["staging"]["if"] == "github.event_name == 'workflow_dispatch'"
    assert GITHUB["jobs"]["staging"]["concurrency"]
    assert [rule["when"] for rule in GITLAB["staging"]["rules"]] == ["manual"]
    assert GITLAB["staging"]["resource_group"]


def test_the_page_links_both() -> None:
    page = (ROOT / "docs" / "pipelines.md").read_text(encoding="utf-8")
    assert [path.name for path in FILES.values() if f"(../examples/pipelines/{path.name})" not in page] == []
