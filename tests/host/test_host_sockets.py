"""Sockets at the interfaces of two real network namespaces, which a wire joins; nothing outside them is touched."""

from __future__ import annotations

import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gameday.agent.ring import Done, Ring, Rounds
from gameday.errors import HostError, LinkError
from gameday.host.host_sockets import connect, listen

NEEDED = [name for name in ("ip", "tc", "unshare", "nsenter") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not on PATH: {', '.join(NEEDED)}")


class Namespace:
    """A network namespace of one sleeping process, and a folder in which that process is process 1."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(["unshare", "--net", "sleep", "infinity"], stderr=subprocess.DEVNULL)
        self.pid = self._process.pid
        self.proc = folder
        (folder / "1/ns").mkdir(parents=True)
        (folder / "1/ns/net").symlink_to(f"/proc/{self.pid}/ns/net")

    def wait(self) -> None:
        """Wait until the namespace is its own; skip where the machine grants none."""
        deadline = time.monotonic() + 10
        while Path(f"/proc/{self.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            if self._process.poll() is not None or time.monotonic() > deadline:
                pytest.skip("this machine grants no network namespace")
            time.sleep(0.01)

    def run(self, command: str) -> str:
        argv = ["nsenter", "--target", str(self.pid), "--net", "--", *command.split()]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=10, check=False)
        return done.stderr if done.returncode else ""

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def wired(tmp_path: Path) -> Iterator[tuple[Namespace, Namespace]]:
    with ExitStack() as ends:
        pair: list[Namespace] = []
        for name in ("a", "b"):
            pair.append(Namespace(tmp_path / name))
            ends.callback(pair[-1].end)
        for one in pair:
            try:
                one.wait()
            except FileNotFoundError:
                pytest.skip("this machine grants no network namespace")
        a, b = pair
        for one, command in (
            (a, f"ip link add ib0 type veth peer name ib0 netns {b.pid}"),
            (a, "ip addr add 10.9.0.1/24 dev ib0"),
            (b, "ip addr add 10.9.0.2/24 dev ib0"),
            (a, "ip link set ib0 up"),
            (b, "ip link set ib0 up"),
        ):
            if why := one.run(command):
                pytest.skip(f"{command}: {why.strip()}")
        yield a, b


def reduced(a: Namespace, b: Namespace, order: Rounds) -> list[Done]:
    """All-reduce between the two over ib0."""
    with ExitStack() as open_sockets:
        listeners = [listen(one.proc, "ib0") for one in (a, b)]
        outs = [
            connect(one.proc, "ib0", (other.address, other.port), 5)
            for one, other in zip((a, b), listeners[::-1], strict=True)
        ]
        ins = [listener.socket.accept()[0] for listener in listeners]
        for one in (*outs, *ins, *(listener.socket for listener in listeners)):
            open_sockets.callback(one.close)
        rings = [Ring(rank, 2, outs[rank], ins[rank]) for rank in range(2)]
        done: dict[int, Done] = {}
        threads = [
            threading.Thread(target=lambda rank=rank: done.update({rank: rings[rank].run(order)})) for rank in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return [done[0], done[1]]


def test_a_ring_goes_over_the_interface_and_a_real_tbf_slows_it(wired: tuple[Namespace, Namespace]) -> None:
    a, b = wired
    order = Rounds(rounds=1, elements=1 << 17, within_s=20)
    free = reduced(a, b, order)
    assert [(one.rounds, one.wrong, one.cut_off) for one in free] == [(1, 0, "")] * 2
    if why := a.run("tc qdisc add dev ib0 root tbf rate 10mbit burst 32kb latency 50ms"):
        pytest.skip(f"this kernel has no tbf: {why.strip()}")
    held = reduced(a, b, order)
    # Half of 512 KiB leaves in each of two steps, at 1.25 MB/s less a burst of 32 kB.
    assert max(one.seconds for one in held) > (2 * 262_144 - 2 * 32_768) / 1.25e6
    assert not any(one.cut_off or one.wrong for one in held)


def test_a_link_that_is_down_lets_no_connection_through_whatever_other_way_there_is(
    wired: tuple[Namespace, Namespace],
) -> None:
    a, b = wired
    far = listen(b.proc, "ib0")
    other_way = (
        f"ip link add eth0 type veth peer name eth0 netns {b.pid}",
        "ip addr add 10.8.0.1/24 dev eth0",
        "ip link set eth0 up",
        "ip route add default dev eth0",
    )
    assert not [why for command in other_way if (why := a.run(command))]
    assert not b.run("ip link set eth0 up")
    a.run("ip link set ib0 down")
    with pytest.raises(LinkError, match=r"ib0 to 10\.9\.0\.2"):
        connect(a.proc, "ib0", (far.address, far.port), 0.3)
    far.socket.close()


def test_an_interface_that_is_not_there_or_has_no_address_is_named(wired: tuple[Namespace, Namespace]) -> None:
    a, _ = wired
    with pytest.raises(HostError, match="interface ib77: No such device"):
        listen(a.proc, "ib77")
    a.run("ip addr flush dev ib0")
    with pytest.raises(HostError, match="ib0 has no IPv4 address"):
        listen(a.proc, "ib0")


def test_the_tests_own_thread_stays_where_it_was(wired: tuple[Namespace, Namespace]) -> None:
    before = Path("/proc/thread-self/ns/net").readlink()
    made = listen(wired[0].proc, "ib0")
    assert Path("/proc/thread-self/ns/net").readlink() == before
    with pytest.raises(OSError, match=r"."), socket.create_connection((made.address, made.port), 0.3):
        pass
    made.socket.close()


def test_a_namespace_that_cannot_be_entered_is_an_error_with_its_reason(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot use the host's network: No such file"):
        listen(tmp_path, "ib0")
