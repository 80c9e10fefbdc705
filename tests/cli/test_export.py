"""`gameday export` of a whole folder of runs: the newest run of every plan as OpenMetrics."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gameday.cli import run
from gameday.exit_codes import ExitCode
from tests.report.run_builder import VARIANTS, write


def test_all_runs_of_a_folder_in_one_file(tmp_path: Path) -> None:
    for variant, timed in VARIANTS.items():
        write(tmp_path / "reports" / variant, timed())
    out = tmp_path / "all.prom"
    assert run(["export", str(tmp_path / "reports"), "--openmetrics", str(out)]) == ExitCode.PASSED
    families = {family.name: family for family in text_string_to_metric_families(out.read_text())}
    # All three are of one plan on one cluster: the newest alone is exported.
    assert len(families["gameday_run_start_timestamp_seconds"].samples) == 1


def test_a_folder_without_runs_leaves_no_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "all.prom"
    assert run(["export", str(tmp_path), "--openmetrics", str(out)]) == ExitCode.USAGE
    assert "holds no run that could be read" in capsys.readouterr().err.replace("\n", " ")
    assert run(["export", str(tmp_path / "no"), "--openmetrics", str(out)]) == ExitCode.USAGE
    assert not out.exists()
