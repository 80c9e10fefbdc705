"""The journal against the keys of Chaos Toolkit's reference, and those that `chaos report` needs beyond it.

The schema below follows chaostoolkit-documentation, sources/reference/api/journal.md and experiment.md, narrowed to
what chaostoolkit-reporting 0.18 reads without a default (chaosreport/__init__.py and template/index.md): a file of
this shape is what that tool renders.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from gameday.history.events import Aborted, RunEnded, SteadyStateChecked
from gameday.report.journal_export import journal
from gameday.report.run_folder import load_run_folder
from gameday.values.results import Cleanliness, Step, StepOutcome
from tests.report.run_builder import VARIANTS, Timed, ended, passing, replacing, write

PROVIDER = {"type": "object", "required": ["type"], "properties": {"type": {"enum": ["process", "http", "python"]}}}
ACTIVITY = {
    "type": "object",
    "required": ["type", "name", "provider"],
    "properties": {"type": {"enum": ["probe", "action"]}, "name": {"type": "string"}, "provider": PROVIDER},
}
STAMP = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT[\d:.]+\+00:00$"}
ENTRY = {
    "type": "object",
    "required": ["activity", "status", "start", "end", "duration", "output"],
    "properties": {
        "activity": ACTIVITY,
        "status": {"enum": ["succeeded", "failed"]},
        "start": STAMP,
        "end": STAMP,
        "duration": {"type": "number", "minimum": 0},
        "output": {"type": ["string", "null"]},
        "exception": {"type": "array", "items": {"type": "string"}},
    },
}
PROBED = {"allOf": [ENTRY, {"required": ["tolerance_met"]}]}
STATE = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "required": ["steady_state_met", "probes"],
            "properties": {"steady_state_met": {"type": "boolean"}, "probes": {"type": "array", "items": PROBED}},
        },
    ]
}
EXPERIMENT = {
    "type": "object",
    "required": ["title", "description", "method", "dry"],
    "properties": {
        "title": {"type": "string"},
        "description": {"type": "string"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "method": {"type": "array", "items": ACTIVITY},
        "rollbacks": {"type": "array", "items": ACTIVITY},
        "extensions": {"type": "array", "items": {"type": "object", "required": ["name"]}},
        "steady-state-hypothesis": {
            "type": "object",
            "required": ["title", "probes"],
            "properties": {"probes": {"items": {"allOf": [ACTIVITY, {"required": ["tolerance"]}]}}},
        },
    },
}
JOURNAL = {
    "type": "object",
    "required": [
        "chaoslib-version",
        "experiment",
        "status",
        "start",
        "end",
        "duration",
        "deviated",
        "steady_states",
        "run",
        "rollbacks",
    ],
    "properties": {
        "chaoslib-version": {"type": "string"},
        "experiment": EXPERIMENT,
        "status": {"enum": ["completed", "failed", "aborted", "interrupted"]},
        "start": STAMP,
        "end": STAMP,
        "duration": {"type": "number", "minimum": 0},
        "deviated": {"type": "boolean"},
        "steady_states": {
            "type": "object",
            "required": ["before", "after", "during"],
            "properties": {"before": STATE, "after": STATE, "during": {"type": "array"}},
        },
        "run": {"type": "array", "items": ENTRY},
        "rollbacks": {"type": "array", "items": ENTRY},
    },
}


def exported(folder: Path, timed: list[Timed]) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(journal(load_run_folder(write(folder, timed))))
    return made


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_run_is_a_journal_that_the_tool_can_draw(tmp_path: Path, variant: str) -> None:
    jsonschema.Draft202012Validator(JOURNAL).validate(exported(tmp_path, VARIANTS[variant]()))


def test_a_passing_run_is_completed_and_did_not_deviate(tmp_path: Path) -> None:
    made = exported(tmp_path, passing())
    assert (made["status"], made["deviated"]) == ("completed", False)
    assert [entry["activity"]["name"] for entry in made["run"]] == ["inject", "await alert", "verify taint", "qa node"]
    assert made["steady_states"]["before"]["steady_state_met"] is True


def test_a_broken_expectation_is_a_deviation_of_a_completed_run(tmp_path: Path) -> None:
    made = exported(tmp_path, VARIANTS["detector-off"]())
    assert (made["status"], made["deviated"]) == ("completed", True)


def test_an_abort_is_an_interruption(tmp_path: Path) -> None:
    made = exported(tmp_path, [*passing(), Timed(40, Aborted(by="operator", why="Ctrl-C"))])
    assert made["status"] == "interrupted"


def test_a_killed_run_is_aborted_and_its_open_step_failed_with_an_end(tmp_path: Path) -> None:
    made = exported(tmp_path, VARIANTS["killed"]())
    assert made["status"] == "aborted"
    assert made["run"][-1]["status"] == "failed"
    assert made["run"][-1]["exception"]


def test_a_step_that_could_not_be_carried_out_fails_the_journal(tmp_path: Path) -> None:
    made = exported(tmp_path, ended(passing(), Step.QA_NODE, StepOutcome.UNKNOWN, "no log"))
    assert made["status"] == "failed"


def test_an_unmet_gate_leaves_the_method_empty_as_the_tool_does(tmp_path: Path) -> None:
    made = exported(tmp_path, replacing(passing(), lambda e: isinstance(e, SteadyStateChecked), ok=False))
    assert made["steady_states"]["before"]["steady_state_met"] is False
    assert made["run"] == []


def test_a_dirty_cluster_is_in_the_extension(tmp_path: Path) -> None:
    made = exported(tmp_path, replacing(passing(), lambda e: isinstance(e, RunEnded), cleanliness=Cleanliness.DIRTY))
    assert made["experiment"]["extensions"][0]["cleanliness"] == "dirty"
