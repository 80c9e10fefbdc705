from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.errors import ChildError
from gameday.processes.children import Child, cpu_seconds
from tests.rehearsal.processes import until


@pytest.fixture
def made(tmp_path: Path) -> Iterator[list[Child]]:
    children: list[Child] = []
    yield children
    for child in children:
        child.end()


def _child(made: list[Child], tmp_path: Path, script: str, **options: bool) -> Child:
    child = Child("part", [sys.executable, "-c", script], tmp_path / "part.log", **options)
    made.append(child)
    child.start()
    return child


def test_the_ready_line_is_what_it_says(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, 'import time; print(\'{"ready": true, "port": 7}\', flush=True); time.sleep(60)')
    assert child.await_ready_line() == {"ready": True, "port": 7}
    assert child.alive
    child.end()
    assert not child.alive
    child.end()


def test_its_files_are_its_users_alone_unless_it_plays_game_days(made: list[Child], tmp_path: Path) -> None:
    before, modes = os.umask(0), []
    try:
        for plays_game_days in (False, True):
            child = _child(made, tmp_path, f"open({str(tmp_path / 'file')!r}, 'w')", plays_game_days=plays_game_days)
            assert child.process is not None
            child.process.wait()
            modes.append([path.stat().st_mode & 0o777 for path in (child.log, tmp_path / "file")])
            (tmp_path / "file").unlink()
    finally:
        os.umask(before)
    assert modes == [[0o600, 0o600], [0o600, 0o666]]


def test_one_that_dies_is_named_with_status_last_words_and_log(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, "import sys; print('a\\nthe reason', file=sys.stderr); sys.exit(3)")
    with pytest.raises(ChildError) as said:
        child.await_ready_line()
    assert str(said.value) == (
        f"part ended before it was ready (exit status 3): the reason; its log is {tmp_path / 'part.log'}"
    )


def test_a_child_that_prints_something_else_is_not_ready(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, "import time; print('hello', flush=True); time.sleep(60)")
    with pytest.raises(ChildError, match="printed b'hello"):
        child.await_ready_line()


def test_one_that_hangs_is_named(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, "import time; time.sleep(60)")
    with pytest.raises(ChildError, match=r"is not ready, and did nothing for 0\.2 s"):
        child.await_ready_line(0.2)
    foreign = _child(made, tmp_path, "import time; time.sleep(60)", says_ready=False)
    with pytest.raises(ChildError, match=r"does not answer http://127.0.0.1:9/, and did nothing for 0\.2 s"):
        foreign.await_url("http://127.0.0.1:9/", stalled_after_s=0.2)


def test_one_that_is_only_slow_is_waited_for(
    made: list[Child], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts to serve when the wait has looked at its progress five times."""
    looks: list[int] = []

    def cpu_seconds(pid: int) -> float:
        looks.append(pid)
        if len(looks) == 10:
            (tmp_path / "go").touch()
        return float(len(looks))

    monkeypatch.setattr("gameday.processes.children.cpu_seconds", cpu_seconds)
    script = (
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('{}', flush=True); time.sleep(60)"
    )
    child = _child(made, tmp_path, f"import os; os.chdir({str(tmp_path)!r})\n{script}")
    assert child.await_ready_line(0.05) == {}
    assert set(looks) == {child.process.pid if child.process else 0}


@pytest.mark.slow
def test_processor_time_grows_with_work_only() -> None:
    before = cpu_seconds(os.getpid())
    begun = time.process_time()
    while time.process_time() - begun < 0.1:
        pass
    assert cpu_seconds(os.getpid()) - before >= 0.05
    with subprocess.Popen(["sleep", "60"]) as idle:
        assert cpu_seconds(idle.pid) < 1
        idle.kill()
    assert cpu_seconds(idle.pid) == 0


@pytest.mark.slow
def test_words_of_an_earlier_process_in_the_log_are_not_this_ones(made: list[Child], tmp_path: Path) -> None:
    (tmp_path / "part.log").write_text("bind: Address already in use\n")
    child = _child(made, tmp_path, "import sys; print('Fresh', file=sys.stderr)", says_ready=False)
    until(lambda: child.wrote("fresh"), 60, "it wrote its words")
    assert not child.wrote("address already in use")


def test_a_foreign_program_may_talk_as_much_as_it_likes(made: list[Child], tmp_path: Path) -> None:
    """A pipe that nobody reads would stop it after 64 KiB."""
    child = _child(made, tmp_path, "print('x' * 300_000)", says_ready=False)
    until(lambda: not child.alive, 10, "it writes to the end")
    assert (tmp_path / "part.log").stat().st_size > 300_000
    with pytest.raises(ChildError, match="ended before it was ready"):
        child.await_url("http://127.0.0.1:9/")


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time; from pathlib import Path; from gameday.processes.children import Child;"
        "child = Child('part', ['sleep', '60'], Path(sys.argv[1])); child.start();"
        "print(child.process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.send_signal(signal.SIGKILL)
    until(lambda: not _lives(pid), 5, f"process {pid} ends")


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _oom_score_adj(pid: int | str) -> int:
    return int(Path(f"/proc/{pid}/oom_score_adj").read_text())


@pytest.mark.slow
def test_the_kernel_kills_a_child_and_its_children_first(made: list[Child], tmp_path: Path) -> None:
    script = (
        "import json, subprocess, sys, time\n"
        "own = subprocess.run(['cat', '/proc/self/oom_score_adj'], capture_output=True, text=True).stdout\n"
        "print(json.dumps({'own': int(own)}), flush=True); time.sleep(60)"
    )
    child = _child(made, tmp_path, script)
    assert child.await_ready_line() == {"own": 1000}
    assert child.process is not None
    assert _oom_score_adj(child.process.pid) == 1000
    assert _oom_score_adj("self") < 1000


@pytest.mark.slow
def test_one_that_plays_game_days_is_killed_as_late_as_we_are(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, "import time; time.sleep(60)", says_ready=False, plays_game_days=True)
    assert child.process is not None
    assert _oom_score_adj(child.process.pid) == _oom_score_adj("self")


def test_one_that_is_killed_is_gone_at_once(made: list[Child], tmp_path: Path) -> None:
    child = _child(made, tmp_path, "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)")
    child.kill()
    child.end()
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL
    child.kill()
