"""`openmetrics` of the profile: the file that each published run renews."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gameday.cluster.profile import ClusterProfile
from gameday.runs.run_list import ARMS_FILE
from gameday.tasks.publish import publish_folder
from tests.report.run_builder import VARIANTS, passing, write

HERE = {"url": "http://127.0.0.1:1"}


def profile_of(file: Path) -> ClusterProfile:
    return ClusterProfile(prometheus=HERE, alertmanager=HERE, loki=HERE, openmetrics=file)


def started_in(file: Path) -> list[float]:
    families = {family.name: family for family in text_string_to_metric_families(file.read_text())}
    return [sample.value for sample in families["gameday_run_start_timestamp_seconds"].samples]


def test_the_newest_run_of_the_folder_is_in_the_file_whichever_is_published(tmp_path: Path) -> None:
    file = tmp_path / "metrics" / "game-days.prom"
    folders = [write(tmp_path / "reports" / name, made()) for name, made in VARIANTS.items()]
    publish_folder(profile_of(file), folders[0])
    first = started_in(file)
    assert len(first) == 1
    assert file.stat().st_mode & 0o777 == 0o644, "node-exporter is another user"
    file.write_text("left over")
    publish_folder(profile_of(file), folders[-1])
    assert started_in(file) == first
    assert list(file.parent.iterdir()) == [file], "nothing beside it: the textfile collector reads the whole folder"


def test_a_game_day_of_a_comparison_does_not_take_the_files_place(tmp_path: Path) -> None:
    comparison = tmp_path / "reports" / "comparison"
    folder = write(comparison / "arm", passing())
    (comparison / ARMS_FILE).write_text("{}")
    file = tmp_path / "game-days.prom"
    file.write_text("before")
    publish_folder(profile_of(file), folder)
    assert file.read_text() == "before"


@pytest.mark.usefixtures("flow_logger")
def test_a_folder_that_is_not_there_is_said_with_the_command_for_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / "reports" / "r1", passing())
    file = tmp_path / "no" / "metrics" / "game-days.prom"
    with caplog.at_level("WARNING", "test.publish"):
        publish_folder(profile_of(file), folder)
    assert f"no OpenMetrics: {file.parent}: no such file or directory" in caplog.text
    assert f"gameday export {tmp_path / 'reports'} --openmetrics {file}" in caplog.text
