"""A game-day's own process stays light: processes that end make its frames and its report."""

from __future__ import annotations

import json
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from gameday.cli.verdicts import print_result
from gameday.report.notes import NOTES_FILE
from gameday.runs.rendering import render_apart
from gameday.runs.run_row import ROW_FILE, render_run
from tests.report.run_builder import START, passing, write

SCRIPT = """
import json, sys
from pathlib import Path
from rich.console import Console
import gameday.flows.game_day
from gameday.cli.verdicts import print_result
from gameday.runs.rendering import render_apart
from gameday.history.frame_writer import write_frames

folder = Path(sys.argv[1])
write_frames({}, folder / "frames")
rendered = render_apart(folder, None)
code = print_result(Console(), folder)
print(json.dumps([code == rendered.result.exit_code, sorted({name.split(".")[0] for name in sys.modules})]))
"""


@pytest.mark.slow
def test_a_game_day_makes_no_frame_and_judges_nothing_in_its_own_process(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing())
    done = subprocess.run([sys.executable, "-c", SCRIPT, folder], capture_output=True, text=True, check=True)
    same, modules = json.loads(done.stdout.splitlines()[-1])
    assert (folder / "report.html").is_file()
    assert same
    assert "PASSED  cluster clean" in done.stdout
    assert not {"pandas", "pyarrow", "numpy"} & set(modules)


@pytest.mark.slow
def test_a_report_rendered_apart_has_the_same_result(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing())
    apart = render_apart(folder, "http://here/report.html")
    assert apart.result == render_run(folder, START).result
    assert "http://here/report.html" in apart.words
    assert (folder / ROW_FILE).is_file()
    assert (folder / NOTES_FILE).is_file()


@pytest.mark.slow
def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing())
    (folder / "report.html").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        render_apart(folder, None)
    assert str(caught.value.filename).startswith(str(folder / "report.html"))


def test_a_run_whose_verdicts_were_not_written_is_judged_again(tmp_path: Path) -> None:
    folder = write(tmp_path / "run", passing())
    rendered = render_run(folder, START)
    rendered.verdicts.write_text("[{")
    out = Console(file=StringIO(), width=120)
    assert print_result(out, folder) == rendered.result.exit_code
    assert "alert" in out.file.getvalue().lower()
