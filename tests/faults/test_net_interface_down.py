"""An interface goes down and comes back with the routes and addresses that the kernel forgot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.net_interface_down import InterfaceDownFault, InterfaceDownParameters
from gameday.host.base import ProgramResult
from tests.faults import recorded_iproute2 as recorded
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost, result

FAULT = InterfaceDownFault()
IB0 = InterfaceDownParameters(interface="ib0")
WRITTEN = "default via 10.9.0.2 dev ib0 table 100 metric 5"


def state(host: ModelHost) -> list[Any]:
    network = host.machine.network
    return [(one.name, one.up, one.address6, network.routes(one.name)) for one in network.interfaces.values()]


def test_link_routes_and_addresses_come_back(host: ModelHost) -> None:
    before = state(host)
    evidence = FAULT.inject(IB0, 0, host)
    assert not host.machine.network.interfaces["ib0"].up
    assert "2 route(s) and 1 IPv6 address(es)" in evidence.lines[0]
    assert not FAULT.verify_undone(IB0, 0, host, evidence.undo_state)
    lines = FAULT.undo(IB0, 0, host, evidence.undo_state).lines
    assert FAULT.verify_undone(IB0, 0, host, evidence.undo_state)
    assert state(host) == before
    assert any("route replace 10.200.0.0/16 via 10.128.255.254 dev ib0" in line for line in lines)
    assert any("route replace default via 10.128.255.254 dev ib0 table 100" in line for line in lines)


def test_a_route_that_is_not_put_back_is_seen(host: ModelHost) -> None:
    undo_state = FAULT.inject(IB0, 0, host).undo_state
    host.ignore = {"replace"}
    FAULT.undo(IB0, 0, host, undo_state)
    assert not FAULT.verify_undone(IB0, 0, host, undo_state)


def test_an_undo_without_state_brings_the_link_up(host: ModelHost) -> None:
    FAULT.inject(IB0, 0, host)
    FAULT.undo(IB0, 0, host, {})
    assert FAULT.verify_undone(IB0, 0, host, {})


def test_an_ip_that_says_yes_and_does_nothing_is_no_injection(host: ModelHost) -> None:
    host.ignore = {"down"}
    with pytest.raises(HostError, match="still up"):
        FAULT.inject(IB0, 0, host)


def test_a_link_that_is_down_already_is_refused(host: ModelHost) -> None:
    host.machine.network.set_link("ib0", up=False)
    with pytest.raises(HostError, match="down already"):
        FAULT.prior_state(IB0, 0, host)


def test_the_interface_that_the_node_lives_by_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match="default route"):
        FAULT.prior_state(InterfaceDownParameters(interface="eth0"), 0, host)


def test_it_is_dangerous() -> None:
    assert "net_interface_down" in IB0.dangers()


def answering(**answers: list[dict[str, Any]]) -> FakeHost:
    """A real host with ib0 up; `answers`: by words of the command, with `_` for a blank."""
    host = FakeHost()
    link = json.loads(recorded.LINK_UP)

    def answer(argv: Any) -> ProgramResult:
        line = " ".join(argv)
        found = next((given for words, given in answers.items() if words.replace("_", " ") in line), None)
        shown = found if found is not None else link if "link show dev" in line else []
        if argv[0] == "ss":
            return result(argv, stdout=recorded.CONNECTIONS)
        if "get" in argv:
            shown = [{"dst": argv[-1], "dev": "eth0", "flags": []}]
        return result(argv, stdout=json.dumps(shown))

    host.programs = answer
    return host


def test_an_interface_that_others_lie_on_is_refused() -> None:
    vlan = {"ifname": "ib0.7", "link": "ib0", "flags": ["UP"]}
    with pytest.raises(HostError, match=r"ib0\.7 lie"):
        FAULT.prior_state(IB0, 0, answering(type_vlan=[vlan], **{"show_dev_ib0.7": [vlan]}))


def test_a_route_of_a_kind_that_we_could_not_write_again_is_refused() -> None:
    odd = {"dst": "10.7.0.0/16", "encap": "mpls", "flags": []}
    with pytest.raises(HostError, match="could not be put back"):
        FAULT.prior_state(IB0, 0, answering(route_show_table_all=[odd]))


def test_a_route_of_another_table_or_metric_is_another_route() -> None:
    """`ip route flush` of one of two that share destination and gateway is seen, and only that one is written."""
    shown = [{"dst": "default", "gateway": "10.9.0.2", "table": "100", "metric": 5, "flags": []}]
    before = FAULT.prior_state(IB0, 0, answering(route_show_table_all=shown))
    for change in ({"table": "101"}, {"metric": 6}):
        now = answering(route_show_table_all=[shown[0] | change])
        assert not FAULT.verify_undone(IB0, 0, now, before), change
        FAULT.undo(IB0, 0, now, before)
        assert ("ip", "-4", "route", "replace", *WRITTEN.split()) in now.ran
    assert FAULT.verify_undone(IB0, 0, answering(route_show_table_all=shown), before)


def test_routes_to_neighbours_are_written_before_those_by_way_of_them() -> None:
    via = {"dst": "default", "gateway": "10.7.0.1", "flags": []}
    neighbour = {"dst": "10.7.0.1", "scope": "link", "flags": []}
    before = FAULT.prior_state(IB0, 0, answering(route_show_table_all=[via, neighbour]))
    host = answering()
    FAULT.undo(IB0, 0, host, before)
    assert [argv[4] for argv in host.ran if "replace" in argv][:2] == ["10.7.0.1", "default"]


def test_addresses_and_routes_of_a_router_are_not_ours_to_put_back() -> None:
    info = {"local": "fd00::7", "prefixlen": 64, "dynamic": True}
    route = {"dst": "fd00::/64", "protocol": "ra", "metric": 100, "flags": []}
    local = [{"type": it, "dst": "10.9.0.1", "flags": []} for it in ("local", "broadcast", "multicast", "anycast")]
    own = {"dst": "10.9.0.9", "table": "local", "flags": []}
    host = answering(addr_show=[{"addr_info": [info]}], route_show_table_all=[route, own, *local])
    before = json.loads(FAULT.prior_state(IB0, 0, host)["before"])
    assert (before["routes"], before["addresses"]) == ({"-4": [], "-6": []}, [])
