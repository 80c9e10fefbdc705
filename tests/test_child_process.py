"""Work in a process that ends: answers, errors and signals come to the one that asked."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from gameday import child_process

WORK = """
import os, signal
from gameday import child_process

def work(request):
    print("said aside")
    match request:
        case b"session": return str(os.getsid(0)).encode()
        case b"full": raise OSError(28, "No space left on device", "frames/x.parquet")
        case b"killed": os.kill(os.getpid(), signal.SIGKILL)
        case b"bug": raise KeyError("a bug of ours")
    return request.upper()

child_process.answer(work)
"""


@pytest.fixture(autouse=True)
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a module `some_work` where a child finds it, beside the project."""
    (tmp_path / "some_work.py").write_text(WORK)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{Path(child_process.__file__).parents[1]}")


def test_what_it_prints_is_no_part_of_the_answer(capsys: pytest.CaptureFixture[str]) -> None:
    assert child_process.ask("some_work", b"request") == b"REQUEST"
    assert capsys.readouterr() == ("", "said aside\n")


def test_an_error_of_the_system_is_the_askers() -> None:
    with pytest.raises(OSError, match="No space left on device") as caught:
        child_process.ask("some_work", b"full")
    assert (caught.value.errno, caught.value.filename) == (28, "frames/x.parquet")


def test_a_bug_is_named_and_keeps_its_traceback() -> None:
    with pytest.raises(RuntimeError, match="some_work ended with 1: KeyError: 'a bug of ours'") as caught:
        child_process.ask("some_work", b"bug")
    assert "in work" in caught.value.__notes__[0]


def test_one_that_is_killed_is_no_answer() -> None:
    with pytest.raises(RuntimeError, match=f"ended with -{signal.SIGKILL:d}"):
        child_process.ask("some_work", b"killed")


def test_a_ctrl_c_of_the_terminal_does_not_reach_it() -> None:
    assert int(child_process.ask("some_work", b"session")) != os.getsid(0)
