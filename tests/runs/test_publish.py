from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from gameday.errors import PublishError
from gameday.history.events import RunStarted
from gameday.runs.publish import publish
from tests.report.run_builder import passing, replacing
from tests.runs.row_builders import run_named
from tests.support.tmpfs import fill, tmpfs


def test_a_run_is_copied_whole_into_any_file_system(tmp_path: Path) -> None:
    run = run_named(tmp_path, "r1")
    (run / "frames").mkdir()
    (run / "frames" / "metrics.parquet").write_bytes(b"\0parquet")
    link = publish(run, "memory://bucket/gamedays")
    memory = fsspec.filesystem("memory")
    assert link.endswith("/bucket/gamedays/r1")
    assert memory.cat("/bucket/gamedays/r1/frames/metrics.parquet") == b"\0parquet"
    assert memory.cat("/bucket/gamedays/r1/history.jsonl") == (run / "history.jsonl").read_bytes()


def test_a_folder_of_this_machine_is_a_url_too(tmp_path: Path) -> None:
    publish(run_named(tmp_path, "r1"), f"file://{tmp_path}/out")
    assert (tmp_path / "out" / "r1" / "history.jsonl").is_file()


def test_copying_again_renews_the_copy_but_never_replaces_another_run(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/out"
    run = run_named(tmp_path / "a", "r1")
    publish(run, url)
    (run / "report.html").write_text("new")
    publish(run, url)
    assert (tmp_path / "out" / "r1" / "report.html").read_text() == "new"
    other = run_named(tmp_path / "b", "r1", replacing(passing(), lambda e: isinstance(e, RunStarted), cluster="other"))
    with pytest.raises(PublishError, match="another run"):
        publish(other, url)


@pytest.mark.parametrize("url", ["nosuch://x/y", "file:///proc/nowhere"])
def test_the_error_names_a_place_that_cannot_be_used(tmp_path: Path, url: str) -> None:
    with pytest.raises(PublishError, match=url[:6]):
        publish(run_named(tmp_path, "r1"), url)


def test_a_full_disk_is_said(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    with tmpfs(tmp_path / "there", "size=4k") as there:
        fill(there)
        with pytest.raises(PublishError, match="no space left on device; make room there"):
            publish(run_named(tmp_path, "r1"), str(there))
