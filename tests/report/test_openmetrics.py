from __future__ import annotations

import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gameday.report.openmetrics import openmetrics
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary
from gameday_rehearsal.programs import find_program
from tests.report.run_builder import VARIANTS, passing, write


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    made = summarise(load_run_folder(write(tmp_path, passing())))
    assert made is not None
    return made


def samples(*runs: Summary) -> dict[tuple[str, ...], float]:
    families = text_string_to_metric_families(openmetrics(runs).decode())
    return {
        (sample.name, *sorted(v for k, v in sample.labels.items() if k not in ("plan", "cluster"))): sample.value
        for family in families
        for sample in family.samples
    }


def test_the_timings_of_a_run_are_gauges_in_seconds(summary: Summary) -> None:
    exported = samples(summary)
    assert exported["gameday_run_measure_seconds", "time_to_alert"] == pytest.approx(5.4)
    assert exported["gameday_run_outcome", "passed"] == 1
    assert exported["gameday_run_outcome", "failed"] == 0


def test_what_was_not_measured_has_no_sample(tmp_path: Path) -> None:
    run = summarise(load_run_folder(write(tmp_path, VARIANTS["killed"]())))
    assert run is not None
    assert ("gameday_run_measure_seconds", "time_to_return") not in samples(run)


def test_only_the_newest_run_of_a_plan_is_exported(summary: Summary) -> None:
    old = summary.model_copy(update={"started": summary.started - timedelta(days=7), "seconds": 1.0})
    exported = samples(old, summary)
    assert exported[("gameday_run_length_seconds",)] == pytest.approx(summary.seconds)


def test_promtool_finds_nothing_to_mend_even_with_hostile_labels(summary: Summary) -> None:
    hostile = summary.model_copy(update={"plan": 'a"b\\c\n{d}\x1b', "cluster": "<é>"})
    promtool = find_program("promtool")
    text = openmetrics([summary, hostile])
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
