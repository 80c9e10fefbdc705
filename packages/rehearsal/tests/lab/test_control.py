"""A running supervisor is asked to restart, kill, pause or hold a component, and kills one above its memory limit."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.cluster.lab_control import (
    SOCKET,
    Answer,
    Configure,
    Fresh,
    Verb,
    ask_lab,
    configure_lab,
    look_at,
    restart_api_servers,
)
from gameday.errors import ControlError
from gameday.processes.children import Child
from gameday_rehearsal.lab.control import Control
from gameday_rehearsal.lab.settings import STOCK, changed
from gameday_rehearsal.lab.supervisor import Supervision, Supervisor
from tests.rehearsal.processes import until

pytestmark = pytest.mark.slow

_WAITS = ["/bin/sh", "-c", "exec sleep 1000"]
_GROWS = [sys.executable, "-c", "import time; held = b'x' * 200_000_000; time.sleep(1000)"]
_URL = "http://127.0.0.1:1"
_LIMIT = 100_000_000
_END = "the-end"
"""The name of a component that is never started; whoever asks for it ends the supervisor."""


class Enough(Exception):
    """Ends `supervise`, as a signal's handler would."""


class Supervised:
    """A supervisor at work in a thread, on children that only sleep."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.changes: list[Configure | Fresh] = []
        self.supervisor = Supervisor(folder, self._say)
        self.control = Control(folder)
        self._thread = threading.Thread(target=self._supervise)

    def add(self, name: str, argv: list[str], limit: int | None = None, *, held: bool = False) -> None:
        child = Child(name, argv, self.folder / f"{name}.log", says_ready=False)
        self.supervisor.spawn(child, Supervision("v1", _URL, _URL, limit, held))

    def begin(self) -> None:
        self.add(_END, _WAITS, held=True)
        self._thread.start()

    def component(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "components.json").read_text())[name]
        return found

    def ask(self, verb: Verb, name: str) -> int | None:
        return ask_lab(self.folder / SOCKET, verb, name)

    def end(self) -> None:
        if self._thread.is_alive():
            with pytest.raises(ControlError, match="no answer"):
                self.ask(Verb.HOLD, _END)
            self._thread.join()
        self.supervisor.end()
        self.control.close()

    def _say(self, line: str) -> None:
        if line.startswith(_END):
            raise Enough
        self.said.append(line)

    def _supervise(self) -> None:
        with contextlib.suppress(Enough):
            self.supervisor.supervise(self.control, self._change)

    def _change(self, asked: Configure | Fresh) -> None:
        self.changes.append(asked)
        if isinstance(asked, Configure):
            changed(STOCK, asked.rehearsal)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Supervised]:
    folder = tmp_path / ("deep" * 30)  # a socket's name may have 107 bytes
    folder.mkdir()
    made = Supervised(folder)
    yield made
    made.end()


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_restart_gives_another_process_and_is_counted(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    before = lab.component("part")["pid"]
    after = lab.ask(Verb.RESTART, "part")
    assert after not in (None, before)
    assert lab.component("part")["pid"] == after
    assert lab.component("part")["restarts"] == 1
    assert not Path(f"/proc/{before}").exists()


def test_a_killed_component_is_started_again_as_after_any_crash(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    before = lab.component("part")["pid"]
    assert lab.ask(Verb.KILL, "part") is None
    until(lambda: lab.component("part")["pid"] not in (None, before), 10, "it is started again")
    assert lab.component("part")["restarts"] == 1
    assert any("part ended (exit status -9)" in line for line in lab.said)


def test_a_paused_component_is_stopped_until_it_is_resumed(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    pid = lab.ask(Verb.PAUSE, "part")
    assert pid is not None
    until(lambda: _state(pid) == "T", 10, "it is stopped")
    assert lab.component("part")["paused"]
    assert lab.ask(Verb.RESUME, "part") == pid
    until(lambda: _state(pid) == "S", 10, "it goes on")
    assert not lab.component("part")["paused"]


def test_a_bounded_pause_ends_by_itself(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    pid = ask_lab(lab.folder / SOCKET, Verb.PAUSE, "part", 0.3)
    assert look_at(lab.folder / SOCKET, "part") == Answer(pid=pid, paused=True)
    until(lambda: not look_at(lab.folder / SOCKET, "part").paused, 10, "nobody asks for it")
    until(lambda: _state(pid or 0) == "S", 10, "it goes on")
    assert not lab.component("part")["paused"]


def test_fresh_servers_are_not_started_behind_a_paused_component(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    lab.ask(Verb.PAUSE, "part")
    restart_api_servers(lab.folder / SOCKET)
    assert not look_at(lab.folder / SOCKET, "part").paused


def test_a_paused_component_ends_with_the_others(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.begin()
    pid = lab.ask(Verb.PAUSE, "part")
    lab.end()
    assert not Path(f"/proc/{pid}").exists()


def test_one_that_is_held_is_started_only_when_asked_for(lab: Supervised) -> None:
    lab.add("first", _WAITS)
    lab.add("later", _WAITS, held=True)
    lab.begin()
    assert (lab.component("later")["pid"], lab.component("later")["held"]) == (None, True)
    with pytest.raises(ControlError, match="later does not run just now"):
        lab.ask(Verb.PAUSE, "later")
    assert lab.ask(Verb.START, "later") == lab.component("later")["pid"]
    assert lab.component("later")["restarts"] == 0
    with pytest.raises(ControlError, match="later runs already"):
        lab.ask(Verb.START, "later")
    assert lab.ask(Verb.HOLD, "later") is None
    # A look at everything else leaves it held.
    lab.ask(Verb.RESTART, "first")
    assert (lab.component("later")["pid"], lab.component("later")["held"]) == (None, True)


def test_a_component_nobody_has_is_refused_with_those_there_are(lab: Supervised) -> None:
    lab.add("etcd", _WAITS)
    lab.add("kube-apiserver", _WAITS)
    lab.begin()
    with pytest.raises(ControlError, match="'nobody': choose etcd, kube-apiserver"):
        lab.ask(Verb.KILL, "nobody")


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b'{"verb": "format", "component": "etcd"}\n', b"\xff\x00\n", b"[" * 4096, b'{"verb": "ki']
)
def test_what_is_no_request_changes_nothing_and_holds_nobody_up(lab: Supervised, line: bytes) -> None:
    lab.add("etcd", _WAITS)
    lab.begin()
    before = lab.component("etcd")["pid"]
    directory = os.open(lab.folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            client.sendall(line)
            client.shutdown(socket.SHUT_WR)
            assert "is not a request" in json.loads(client.recv(65536))["error"]
    finally:
        os.close(directory)
    assert lab.ask(Verb.RESUME, "etcd") == before


def test_a_client_that_says_nothing_or_goes_away_is_passed_over(lab: Supervised) -> None:
    lab.add("etcd", _WAITS)
    lab.begin()
    directory = os.open(lab.folder, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(f"/proc/self/fd/{directory}/{SOCKET}")
            assert lab.ask(Verb.RESUME, "etcd") is not None
    finally:
        os.close(directory)


def test_only_the_owner_may_ask(lab: Supervised) -> None:
    assert stat.S_IMODE((lab.folder / SOCKET).stat().st_mode) == 0o600


def test_asking_where_no_lab_runs_says_how_to_start_one(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "none"):
        with pytest.raises(ControlError, match="`gameday lab up` starts one"):
            ask_lab(folder / SOCKET, Verb.KILL, "etcd")


def test_a_component_above_its_memory_limit_is_killed_and_noted(lab: Supervised) -> None:
    lab.add("small", _WAITS, _LIMIT)
    lab.add("large", _GROWS, _LIMIT)
    lab.begin()
    until(lambda: lab.component("large")["killed_for_memory"], 30, "it is killed")
    kill = lab.component("large")["killed_for_memory"][0]
    assert kill["rss_bytes"] > _LIMIT
    assert kill["at"].endswith("+00:00")
    assert any(line.startswith("large held ") and "its limit is 95 MiB: killed" in line for line in lab.said)
    until(lambda: lab.component("large")["restarts"], 30, "it is started again, as after any crash")
    assert lab.component("small")["killed_for_memory"] == []
    assert lab.component("small")["restarts"] == 0
    assert any(f"large ended (exit status -{signal.SIGKILL.value})" in line for line in lab.said)


def test_settings_and_a_restart_are_asked_of_the_control_plane_as_a_whole(lab: Supervised) -> None:
    lab.begin()
    configure_lab(lab.folder / SOCKET, {"environment": {"kube-apiserver": {"GOGC": "50"}}})
    restart_api_servers(lab.folder / SOCKET)
    assert lab.changes == [
        Configure(verb="configure", rehearsal={"environment": {"kube-apiserver": {"GOGC": "50"}}}),
        Fresh(verb="fresh"),
    ]
    with pytest.raises(ControlError, match="cannot change api_servers"):
        configure_lab(lab.folder / SOCKET, {"api_servers": 3})


def test_a_component_gives_way_to_another_and_keeps_its_counts(lab: Supervised) -> None:
    lab.add("part", _WAITS)
    lab.add("held", _WAITS, held=True)
    before = lab.component("part")["pid"]
    for name, runs in (("part", True), ("held", False)):
        child = Child(name, _GROWS, lab.folder / f"{name}.log", says_ready=False)
        assert lab.supervisor.is_held(name) != runs
        assert lab.supervisor.replace(child, Supervision("v2", _URL, _URL, held=not runs)) == runs
    assert not Path(f"/proc/{before}").exists()
    assert (lab.component("part")["version"], lab.component("part")["restarts"]) == ("v2", 1)
    assert (lab.component("held")["pid"], lab.component("held")["restarts"]) == (None, 0)
