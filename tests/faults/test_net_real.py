"""The real tc and ip of this machine, in a network namespace of the test's own: nothing outside it is touched."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.faults.net_interface_down import InterfaceDownFault, InterfaceDownParameters
from gameday.faults.net_netem import NetemFault, NetemParameters
from gameday.faults.net_qdisc import qdiscs
from gameday.faults.net_tbf import TbfFault, TbfParameters
from gameday.faults.network import query
from gameday.host.base import ProgramResult
from gameday.host.program import run_program
from tests.faults import recorded_iproute2 as recorded
from tests.host.fake import FakeHost, result

NEEDED = [name for name in ("tc", "ip", "ss", "unshare", "nsenter") if shutil.which(name) is None]
pytestmark = pytest.mark.skipif(bool(NEEDED), reason=f"not on PATH: {', '.join(NEEDED)}")

SET_UP = (
    "ip link set lo up",
    "ip link add ib0 type veth peer name ib0p",
    "ip link add eth0 type veth peer name eth0p",
    "ip addr add 10.9.0.1/24 dev ib0",
    "ip -6 addr add fd00:9::1/64 dev ib0 nodad",
    "ip addr add 10.8.0.1/24 dev eth0",
    *(f"ip link set {name} up" for name in ("ib0", "ib0p", "eth0", "eth0p")),
    "ip route add 10.77.0.0/16 via 10.9.0.2 dev ib0 metric 50",
    "ip route add default via 10.9.0.2 dev ib0 table 100",
    "ip -6 route add default via fd00:9::2 dev ib0 table 100",
    "ip route add default via 10.8.0.254 dev eth0",
)


class NamespaceHost(FakeHost):
    """A fake host whose programs are real ones, run in the namespaces of one process."""

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._wrapper = ("nsenter", "--target", str(pid), "--user", "--net", "--preserve-credentials", "--")

    def run(self, argv: Sequence[str], timeout_s: float) -> ProgramResult:
        if argv[0] == "ss":  # no kubelet lives in a namespace of a test's own
            return result(argv, stdout=recorded.CONNECTIONS)
        return run_program([*self._wrapper, *argv], timeout_s, shown=argv)


@pytest.fixture
def host() -> Iterator[NamespaceHost]:
    process = subprocess.Popen(["unshare", "--user", "--map-root-user", "--net", "sleep", "infinity"])
    try:
        host = NamespaceHost(process.pid)
        _entered(process)
        for command in SET_UP:
            done = host.run(command.split(), 10)
            if done.exit_status:
                pytest.skip(f"{command}: {done.stderr.strip()}")
        yield host
    finally:
        process.kill()
        process.wait()


def _entered(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has namespaces of its own, and root in them; skip where the machine grants none."""
    own, theirs = Path("/proc/self/ns/net").readlink(), Path(f"/proc/{process.pid}/ns/net")
    maps = [Path(f"/proc/{process.pid}/{kind}_map") for kind in ("uid", "gid")]
    deadline = time.monotonic() + 10
    # unshare(1) maps root after it made the namespaces: a process that enters between has no right there.
    while theirs.readlink() == own or not all(one.read_text().strip() for one in maps):
        if process.poll() is not None or time.monotonic() > deadline:
            pytest.skip("this machine grants no network namespace")
        time.sleep(0.01)


def test_tbf_on_a_real_kernel(host: NamespaceHost) -> None:
    fault, parameters = TbfFault(), TbfParameters(interface="ib0", rate_mbit=100)
    before = qdiscs(host, "ib0")
    try:
        evidence = fault.inject(parameters, 0, host)
    except HostError as error:
        if "qdisc kind is unknown" in str(error):
            pytest.skip("this kernel has no sch_tbf")
        raise
    assert qdiscs(host, "ib0")[0]["kind"] == "tbf"
    fault.undo(parameters, 0, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 0, host, evidence.undo_state)
    assert qdiscs(host, "ib0") == before


def test_netem_on_a_real_kernel(host: NamespaceHost) -> None:
    fault = NetemFault()
    parameters = NetemParameters(
        interface="ib0",
        delay=timedelta(milliseconds=50),
        jitter=timedelta(milliseconds=10),
        loss=0.01,
        duplicate=0.005,
        corrupt=0.001,
        rate_mbit=1000,
    )
    before = qdiscs(host, "ib0")
    try:
        evidence = fault.inject(parameters, 0, host)
    except HostError as error:
        if "qdisc kind is unknown" in str(error):
            pytest.skip("this kernel has no sch_netem")
        raise
    fault.undo(parameters, 0, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 0, host, evidence.undo_state)
    assert qdiscs(host, "ib0") == before


def test_a_kernel_that_lacks_the_qdisc_is_a_refusal_in_its_own_words(host: NamespaceHost) -> None:
    done = host.run(["tc", "qdisc", "add", "dev", "ib0p", "root", "netem", "delay", "1ms"], 10)
    if done.exit_status == 0:
        pytest.skip("this kernel has sch_netem")
    with pytest.raises(HostError, match="qdisc kind is unknown"):
        NetemFault().inject(NetemParameters(interface="ib0", loss=0.01), 0, host)


def test_a_queue_that_somebody_set_comes_back_on_a_real_kernel(host: NamespaceHost) -> None:
    done = host.run(["tc", "qdisc", "add", "dev", "ib0", "root", "handle", "12:", "pfifo", "limit", "77"], 10)
    if done.exit_status:
        pytest.skip(done.stderr)
    before = qdiscs(host, "ib0")
    fault, parameters = TbfFault(), TbfParameters(interface="ib0", rate_mbit=100)
    state = fault.inject(parameters, 0, host).undo_state
    assert qdiscs(host, "ib0") != before
    fault.undo(parameters, 0, host, state)
    assert fault.verify_undone(parameters, 0, host, state)
    assert qdiscs(host, "ib0") == before


def every_route(host: NamespaceHost) -> list[str]:
    """Of ib0, in all tables but `local`, whose own come once the kernel has looked for a duplicate of the address."""
    asked = (query(host, "ip", "-j", family, "route", "show", "table", "all", "dev", "ib0") for family in ("-4", "-6"))
    return sorted(json.dumps(one, sort_keys=True) for shown in asked for one in shown if one.get("table") != "local")


def test_a_real_link_comes_back_with_the_routes_and_addresses_that_the_kernel_dropped(host: NamespaceHost) -> None:
    fault, parameters = InterfaceDownFault(), InterfaceDownParameters(interface="ib0")
    before = every_route(host)
    assert sum('"dst": "default"' in route for route in before) == 2
    state = fault.inject(parameters, 0, host).undo_state
    assert every_route(host) == []
    assert query(host, "ip", "-j", "-6", "addr", "show", "dev", "ib0", "scope", "global") == []
    fault.undo(parameters, 0, host, state)
    assert fault.verify_undone(parameters, 0, host, state)
    assert every_route(host) == before
    after = query(host, "ip", "-j", "-6", "addr", "show", "dev", "ib0", "scope", "global")
    assert [info["local"] for one in after for info in one["addr_info"] if info] == ["fd00:9::1"]


def test_the_real_default_route_is_a_lifeline(host: NamespaceHost) -> None:
    with pytest.raises(HostError, match="default route"):
        TbfFault().prior_state(TbfParameters(interface="eth0", rate_mbit=1), 0, host)


def test_a_real_interface_that_is_not_there(host: NamespaceHost) -> None:
    with pytest.raises(HostError, match='"nope" does not exist'):
        TbfFault().prior_state(TbfParameters(interface="nope", rate_mbit=1), 0, host)
