"""A guest's processes: with their nodes, bounded, and gone with all that they started, however they or we end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from gameday_rehearsal.guests.models import Guest
from gameday_rehearsal.guests.order import GuestOrder
from gameday_rehearsal.nodes import guest_output, guests, server
from gameday_rehearsal.nodes.guests import Guests, InstanceStatus
from gameday_rehearsal.nodes.kernel_log_files import node_files
from gameday_rehearsal.nodes.logship import LogShipper
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.virtual_nodes import Settings, VirtualNodes
from tests.rehearsal.nodes.conftest import DEADLINE_S

pytestmark = pytest.mark.slow

FORKS = """
import os, signal, sys, time
leaves = "leave" in sys.argv
if os.fork() == 0:
    if leaves:
        os.setsid()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        open(sys.argv[1], "w").write(str(os.getpid()))
        time.sleep(600)
    os._exit(0)
time.sleep(600)
"""


def order(folder: Path, *command: str, **environment: str) -> GuestOrder:
    guest = Guest(
        apiVersion="gameday/v1", kind="Guest", name="seer", version="7", command=command, environment=environment
    )
    outputs = folder / "guests"
    outputs.mkdir()
    return GuestOrder(
        guest=guest,
        folder=folder,
        outputs=outputs,
        kubeconfig=folder / "guest.kubeconfig",
        loki_url="http://loki",
        prometheus_url="http://prometheus",
    )


def python(script: str) -> tuple[str, ...]:
    return (sys.executable, "-I", "-S", "-c", script.replace("{", "{{").replace("}", "}}"))


def play(machine: Machine, asked: GuestOrder, act: Callable[[Guests], Awaitable[None]]) -> None:
    async def run() -> None:
        async with (
            node_files(asked.folder / "kernel-logs", [machine]) as files,
            guests.running(asked, {machine.name: machine}, files, "http://nodes", "http://nodes/hosts") as running,
        ):
            await act(running)

    asyncio.run(run())


def only(running: Guests) -> InstanceStatus:
    (status,) = running.status().instances.values()
    return status


async def until(condition: Callable[[], Any], what: str) -> Any:
    async with asyncio.timeout(DEADLINE_S):
        while not (value := condition()):
            await asyncio.sleep(0.01)
    assert value, what
    return value


def printed(status: InstanceStatus) -> list[str]:
    return [line.partition(" ")[2] for line in Path(status.log).read_text().splitlines()]


def is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except FileNotFoundError:
        return False


async def written_pid(path: Path) -> int:
    return int(await until(lambda: path.exists() and path.read_text(), "the grandchild's number"))


def test_it_runs_on_its_node_and_reads_the_nodes_log(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/of/a/real/cluster")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    script = (
        "import os, sys; print(sorted(os.environ)); print(os.environ['KUBECONFIG'], os.environ['WHO'], os.getcwd());"
        "print(open(sys.argv[1], 'rb', 0).read(8192), flush=True); sys.stdin.read(); import time; time.sleep(600)"
    )
    asked = order(tmp_path, *python(script), "{kmsg}", WHO="{node}:{port}")

    async def act(running: Guests) -> None:
        await until(lambda: len(printed(only(running))) == 3, "three lines")
        status = only(running)
        environment, place, record = printed(status)
        assert "AWS_SECRET_ACCESS_KEY" not in environment
        assert place.startswith(f"{tmp_path}/guest.kubeconfig a:")
        assert place.endswith(f" {tmp_path}")
        assert "Linux version" in record
        assert (status.state, status.starts, status.ended_by_itself) == ("running", 1, 0)
        assert status.pid and status.started and status.rss_bytes > 1_000_000
        assert list(running.status().instances) == ["a"]

    play(machine, asked, act)


def test_it_goes_down_and_comes_back_with_its_node(machine: Machine, tmp_path: Path) -> None:
    asked = order(tmp_path, *python("import time; print('up', flush=True); time.sleep(600)"), "{node}")

    async def act(running: Guests) -> None:
        await until(lambda: printed(only(running)) == ["up"], "its line")
        machine.reboot(0.0)
        await until(lambda: not machine.powered, "power off")
        down = only(running)
        assert (down.state, down.pid, down.last_exit) == ("down", None, "signal 15")
        await until(lambda: printed(only(running)) == ["up", "up"], "its line after the boot")
        assert (only(running).starts, only(running).ended_by_itself) == (2, 0)

    play(machine, asked, act)


def test_one_without_a_nodes_placeholder_runs_once_for_the_cluster(machine: Machine, tmp_path: Path) -> None:
    asked = order(tmp_path, *python("import time, sys; print(*sys.argv[1:], flush=True); time.sleep(9)"), "{hosts_url}")

    async def act(running: Guests) -> None:
        await until(lambda: printed(running.status().instances["cluster"]) == ["http://nodes/hosts"], "its line")
        machine.reboot(0.0)
        await until(lambda: not machine.powered, "power off")
        assert only(running).state == "running"

    play(machine, asked, act)


def test_one_that_dies_at_once_is_started_again_after_longer_and_longer_pauses(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "_BACK_OFF_S", (0.02, 0.1))
    asked = order(tmp_path, *python("import time; print(time.monotonic()); raise SystemExit(3)"), "{node}")

    async def act(running: Guests) -> None:
        await until(lambda: only(running).ended_by_itself >= 4, "four ends")
        status = only(running)
        assert (status.last_exit, status.starts - status.ended_by_itself in (0, 1)) == ("exit status 3", True)
        starts = [float(line) for line in printed(status)]
        assert starts[3] - starts[2] > 0.08

    play(machine, asked, act)


@pytest.mark.parametrize(
    ("command", "how"),
    [
        (python("import os; os.kill(os.getpid(), 11)"), "signal 11"),
        (("no-such-program",), "exit status 127"),
        ((str(Path(__file__).parent),), "exit status 126"),
    ],
)
def test_how_it_ended_is_said(machine: Machine, tmp_path: Path, command: tuple[str, ...], how: str) -> None:
    async def act(running: Guests) -> None:
        await until(lambda: only(running).ended_by_itself, "its end")
        assert only(running).last_exit == how
        assert only(running).state == "waiting"

    play(machine, order(tmp_path, *command, "{node}"), act)


def test_a_flood_is_read_to_its_end_but_not_kept(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guest_output, "MOST_BYTES_A_START", 100_000)
    script = "import sys; [print('x' * 99) for _ in range(20_000)]; sys.stdout.write('y' * 9); sys.exit(5)"
    asked = order(tmp_path, *python(script), "{node}")

    async def act(running: Guests) -> None:
        await until(lambda: only(running).ended_by_itself, "its end")
        status = only(running)
        assert status.flooded
        assert status.last_exit == "exit status 5"
        kept = Path(status.log).read_bytes()
        assert 99_000 < len(kept) <= 100_000
        assert kept.endswith(b"x\n")

    play(machine, asked, act)


@pytest.mark.parametrize("how", ["stay", "leave"])
def test_what_it_forks_ends_with_it(
    machine: Machine, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guests, "_GRACE_S", 0.2)
    found = tmp_path / "pid"
    asked = order(tmp_path, *python(FORKS), str(found), how, "{node}")

    async def act(running: Guests) -> None:
        grandchild = await written_pid(found)
        assert is_alive(grandchild)
        await running.instances["a"].stop()
        assert not is_alive(grandchild)
        assert only(running).state == "down"

    play(machine, asked, act)


def test_one_that_ignores_sigterm_is_killed(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guests, "_GRACE_S", 0.2)
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    asked = order(tmp_path, *python(script), "{node}")

    async def act(running: Guests) -> None:
        await until(lambda: printed(only(running)) == ["deaf"], "its line")
        await running.instances["a"].stop()
        assert (only(running).state, only(running).last_exit) == ("down", "signal 9")

    play(machine, asked, act)


def test_a_killed_launcher_takes_its_group_with_it(machine: Machine, tmp_path: Path) -> None:
    found = tmp_path / "pid"
    asked = order(tmp_path, *python(FORKS), str(found), "stay", "{node}")

    async def act(running: Guests) -> None:
        grandchild = await written_pid(found)
        os.kill(only(running).pid or 0, signal.SIGKILL)
        await until(lambda: not is_alive(grandchild), "the grandchild's end")
        assert only(running).last_exit == "signal 9"

    play(machine, asked, act)


KEEPER = """
import subprocess, sys
from gameday_rehearsal.nodes import guest_launcher
import os, time
subprocess.Popen([sys.executable, "-I", "-S", guest_launcher.__file__, str(os.getpid()), "0.2", *sys.argv[1:]],
                 start_new_session=True)
time.sleep(600)
"""


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    found = tmp_path / "pid"
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, sys.executable, "-I", "-S", "-c", FORKS, str(found), "leave"]
    )
    try:
        ends = time.monotonic() + DEADLINE_S
        while not (found.exists() and found.read_text()) and time.monotonic() < ends:
            time.sleep(0.01)
        grandchild = int(found.read_text())
        assert is_alive(grandchild)
    finally:
        keeper.kill()
        keeper.wait()
    while is_alive(grandchild):
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_the_server_shows_the_guest_and_its_output(tmp_path: Path) -> None:
    script = "import time; [print('line', n) for n in range(9_000)]; print('end', flush=True); time.sleep(600)"
    asked = order(tmp_path, *python(script), "{node}")

    async def run() -> None:
        nodes = VirtualNodes(Settings(2, 2, "n", 0.1, tmp_path), LogShipper(None))
        machines = {machine.name: machine for machine in nodes.with_gpus}
        async with (
            TestClient(TestServer(server.application(nodes))) as client,
            node_files(tmp_path / "kernel-logs", nodes.with_gpus) as files,
        ):
            assert (await client.get("/guests")).status == 404
            async with guests.running(asked, machines, files, "http://nodes", "http://nodes/hosts") as nodes.guests:
                await until(
                    lambda: nodes.guests and printed(nodes.guests.status().instances["n-2"])[-1:] == ["end"], ""
                )
                shown = json.loads(await (await client.get("/guests")).read())
                assert (shown["name"], shown["version"], list(shown["instances"])) == ("seer", "7", ["n-1", "n-2"])
                text, at = "", 0
                while True:
                    answer = await client.get(f"/guests/n-2/output?from={at}")
                    if not (piece := await answer.text()):
                        break
                    assert piece.endswith("\n") and len(piece) <= 256 * 1024
                    text, at = text + piece, int(answer.headers["X-Next"])
                assert text == Path(shown["instances"]["n-2"]["log"]).read_text()
                assert (await client.get("/guests/n-9/output")).status == 404
                assert (await client.get("/guests/n-1/output?from=-1")).status == 422

    asyncio.run(run())
