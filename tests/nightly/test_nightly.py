"""The nightly itself, on suites that are a line of shell: what fails it, and how it goes on after it was stopped.

It runs in a process of its own, because it adopts and ends whatever its suites leave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.nightly.__main__ import INTERRUPTED
from tests.nightly.suites import ROOT
from tests.rehearsal.processes import naming, until

NIGHTLY = """\
import json, sys
import tests.nightly.__main__ as nightly
from tests.nightly import left, play
from tests.nightly.suites import Suite
from tests.support.quarantine import parse

class Shell(Suite):
    def command(self, number, junit):
        return ["sh", "-c", self.target, "sh", str(junit)]

asked = json.loads(sys.argv[1])
left.SETTLES_WITHIN_S, play.LONGEST_S = 0.3, asked["longest_s"]
nightly.quarantined = lambda: parse(asked["quarantine"])
suites = [Shell(name, line, is_pytest="$1" in line) for name, line in asked["suites"].items()]
suites.append(Shell("absent", "exit 9", why_not=lambda: "there is no such thing here"))
sys.exit(nightly.main(sys.argv[2:], suites))
"""
PASSES = (
    """echo '<testsuite><testcase name="test_a" file="tests/test_x.py" classname="tests.test_x"/></testsuite>' >"$1" """
)
FAILS = PASSES.replace('"/>', '"><failure message="no &lt;GPU&gt;"/></testcase>') + "; exit 1"
PATIENCE_S = 60.0


@dataclass
class Nightly:
    """A nightly's folder, and how it is called."""

    home: Path
    suites: dict[str, str] = field(default_factory=dict)
    quarantine: str = ""
    longest_s: float = PATIENCE_S

    @property
    def folder(self) -> Path:
        return self.home / "nightly"

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        asked = {"suites": self.suites, "quarantine": self.quarantine, "longest_s": self.longest_s}
        return subprocess.Popen(
            [sys.executable, "-c", NIGHTLY, json.dumps(asked), "--folder", str(self.folder), *arguments],
            cwd=ROOT,
            env={**os.environ, "HOME": str(self.home)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def play(self, *arguments: str) -> tuple[int, str]:
        with self.start(*arguments) as process:
            said, _ = process.communicate(timeout=PATIENCE_S)
        return process.returncode, said

    def percents(self) -> dict[str, float]:
        content = json.loads((self.folder / "nightly.json").read_text(encoding="utf-8"))
        return {test["test"]: test["percent"] for test in content["tests"]}


@pytest.fixture
def nightly(tmp_path: Path) -> Nightly:
    return Nightly(tmp_path)


def counted(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def test_what_passes_passes_and_what_cannot_be_played_is_named(nightly: Nightly) -> None:
    nightly.suites = {"fine": PASSES, "program": "true"}
    status, said = nightly.play("--rounds", "2")
    assert status == 0, said
    assert "absent cannot be played here: there is no such thing here" in said
    assert "round 1 of 2: fine; then program; 0.0 min left without those never played yet, fine, program" in said
    assert "round 2 of 2: program; then nothing" in said
    assert nightly.percents()["tests/test_x.py::test_a"] == 100
    assert "there is no such thing here" in (nightly.folder / "nightly.html").read_text()


def test_a_test_that_fails_is_named_and_so_is_a_suite_that_dies(nightly: Nightly) -> None:
    nightly.suites = {
        "fails": FAILS,
        "dies": 'echo last words; : "$1"; kill -SEGV $$',
        "program": "echo broken; exit 3",
    }
    status, said = nightly.play()
    assert status == 1
    assert "failed: tests/test_x.py::test_a: no <GPU>" in said
    assert "below 99.5 %: tests/test_x.py::test_a: 0 of 1" in said
    assert "failed: suite dies ends by itself: exit status -11, and not one test's result; " in said
    assert "dies.log ends with: last words" in said
    assert "failed: suite program ends by itself: exit status 3; " in said
    assert nightly.play("--suite", "program", "--hours", "0")[0] == 0, "nothing was played since"


def test_a_suite_that_hangs_is_killed_and_named(nightly: Nightly) -> None:
    nightly.suites, nightly.longest_s = {"hangs": f"exec tail -f /dev/null --pid={os.getpid()}"}, 0.2
    status, said = nightly.play()
    assert status == 1
    assert "failed: suite hangs ends by itself: killed after" in said


def test_what_a_suite_leaves_fails_the_nightly_and_is_ended(nightly: Nightly) -> None:
    mark = nightly.home / "mark"
    listens = (
        f"import socket, time; s = socket.create_server(('127.0.0.1', 0)); open({str(mark)!r}, 'w'); time.sleep(600)"
    )
    nightly.suites = {
        # In a session of its own, and an orphan before the suite ends.
        "process": f'(setsid "{sys.executable}" -c "{listens}" &) ; until test -e "{mark}"; do sleep 0.05; done',
        "file": 'mkdir -p "$HOME/.prefect" && touch "$HOME/.prefect/prefect.db"',
        "again": 'touch "$HOME/.prefect/prefect.db"',
    }
    status, said = nightly.play()
    assert status == 1
    (line,) = [line for line in said.splitlines() if "failed: suite process leaves nothing" in line]
    assert "process " in line
    assert str(mark) in line
    assert "listening socket tcp port " in line
    assert f"failed: suite file leaves nothing: file {nightly.home}/.prefect/prefect.db" in said
    assert "failed: suite again" not in said, "the file was there before"
    assert naming(mark) == set()


def test_ctrl_c_ends_it_with_the_page_written_and_the_suite_is_played_again(nightly: Nightly) -> None:
    begun, fine = nightly.home / "begun", nightly.home / "fine"
    # As pytest does, it writes its file also when it is interrupted.
    waits = f'''written() {{ {FAILS}; }}; trap 'written "$1"' INT; echo >>"{begun}"
        test $(wc -l <"{begun}") -eq 1 || {{ {PASSES}; exit; }}; sleep 600 & wait'''
    nightly.suites = {"fine": f'echo >>"{fine}"; {PASSES}', "waits": waits}
    process = nightly.start()
    until(begun.exists, PATIENCE_S, "the second suite to begin")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == INTERRUPTED, said
    assert (nightly.folder / "nightly.html").exists()
    status, said = nightly.play()
    assert status == 0, said
    assert (counted(fine), counted(begun)) == (1, 2)
    assert nightly.percents()["tests/test_x.py::test_a"] == 100
    assert len(list(nightly.folder.glob("round-*"))) == 1


def test_killed_it_leaves_nothing_running_and_goes_on_where_it_was(nightly: Nightly) -> None:
    begun, fine = nightly.home / "begun", nightly.home / "fine"
    waits = (
        f'echo >>"{begun}"; test $(wc -l <"{begun}") -gt 2 && exit; test $(wc -l <"{begun}") -eq 1 || exec sleep 600'
    )
    nightly.suites = {"fine": f'echo >>"{fine}"; {PASSES}', "waits": waits}
    process = nightly.start("--rounds", "2")
    until(lambda: counted(begun) == 2, PATIENCE_S, "the second round's second suite")
    process.kill()
    process.communicate()
    until(lambda: not naming(begun), PATIENCE_S, "its suite to end")
    status, said = nightly.play("--rounds", "2")
    assert status == 0, said
    assert "round 2 of 2: waits; then nothing" in said
    assert (counted(fine), counted(begun)) == (2, 3)


def test_where_nothing_can_be_played_it_does_not_pass(nightly: Nightly) -> None:
    status, said = nightly.play("--suite", "absent")
    assert status == 1
    assert "absent cannot be played here: there is no such thing here" in said


def test_no_suite_is_begun_after_the_hours(nightly: Nightly) -> None:
    nightly.suites = {"fine": PASSES}
    status, said = nightly.play("--hours", "0")
    assert status == 0
    assert "no suite is begun any more; left of round 1: fine" in said


def test_a_test_in_quarantine_blocks_nothing_for_a_week(nightly: Nightly) -> None:
    nightly.suites = {"fails": FAILS}
    today = datetime.now(UTC).date()
    nightly.quarantine = f"tests/test_x.py::test_a {today} a clock"
    status, said = nightly.play()
    assert status == 0, said
    assert "failed in quarantine: tests/test_x.py::test_a" in said
    since = today - timedelta(days=9)
    nightly.quarantine = f"tests/test_x.py::test_a {since} a clock"
    status, said = nightly.play()
    assert status == 1
    assert f"in quarantine since {since}, longer than a week: mend or delete tests/test_x.py::test_a" in said
