"""The files of a proof."""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gameday.exit_codes import ExitCode
from gameday.history.events import RECORD
from gameday.history.journal import History
from gameday_prove.page import HISTORY_FILE, JUNIT_FILE, PAGE_FILE, REPORT_FILE, write_files
from tests.prove.histories import CONDITION_RULE, event, history, monitoring, taint

HOSTILE = "<script>alert(1)</script>\x1b[2J"


def written(folder: Path, found: History) -> Path:
    folder.mkdir(exist_ok=True)
    lines = [RECORD.dump_json(record) for record in found.records]
    (folder / HISTORY_FILE).write_bytes(b"\n".join(lines) + b"\n")
    return folder


def test_page_json_and_junit_say_the_same(tmp_path: Path) -> None:
    folder = written(tmp_path / "prove-1", history(taint(201.0, "x/y"), prometheus=monitoring(CONDITION_RULE)))
    proof, unwritten = write_files(folder)
    assert (proof.exit_code, unwritten) == (ExitCode.FAILED, "")
    report = json.loads((folder / REPORT_FILE).read_text())
    assert report["exit_code"] == 1 and len(report["verdicts"]) == len(proof.verdicts)
    page = (folder / PAGE_FILE).read_text()
    assert "Would this cluster have noticed?" in page and ">missed<" in page
    suite = ElementTree.parse(folder / JUNIT_FILE).getroot()[0]
    assert int(suite.get("failures", "")) == sum(one.is_red for one in proof.verdicts)
    assert int(suite.get("tests", "")) == len(proof.verdicts) + 1


def test_what_a_cluster_says_is_only_text(tmp_path: Path) -> None:
    found = history(event(3.0, HOSTILE, HOSTILE), blind=[HOSTILE], prometheus=monitoring())
    folder = written(tmp_path / "prove-1", found)
    write_files(folder)
    page = (folder / PAGE_FILE).read_text()
    assert "<script>alert" not in page and "&lt;script&gt;alert" in page and "\x1b" not in page
    ElementTree.parse(folder / JUNIT_FILE)


@pytest.mark.parametrize("kept", [1, 2, 4])
def test_a_proof_that_was_killed_has_its_files(tmp_path: Path, kept: int) -> None:
    found = history(event(200.2))
    proof, _ = write_files(written(tmp_path / "prove-1", History(found.records[:kept])))
    assert proof.exit_code is ExitCode.ABORTED
    assert "gameday prove --clean" in (tmp_path / "prove-1" / PAGE_FILE).read_text()


def test_an_empty_history_has_a_page(tmp_path: Path) -> None:
    proof, _ = write_files(written(tmp_path / "prove-1", History(())))
    assert proof.verdicts == ()
