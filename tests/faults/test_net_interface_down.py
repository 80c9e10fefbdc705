"""An interface goes down and comes back with the routes and addresses that the kernel forgot."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gameday.faults.net_interface_down import InterfaceDownFault, InterfaceDownParameters
from gameday.host.base import HostError, ProgramResult
from tests.faults import recorded_iproute2 as recorded
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost

FAULT = InterfaceDownFault()
IB0 = InterfaceDownParameters(interface="ib0")


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


def state(host: ModelHost) -> list[Any]:
    network = host.machine.network
    return [(one.name, one.up, one.address6, network.routes(one.name)) for one in network.interfaces.values()]


def test_link_routes_and_addresses_come_back(host: ModelHost) -> None:
    before = state(host)
    evidence = FAULT.inject(IB0, 0, host)
    assert not host.machine.network.interfaces["ib0"].up
    assert "1 route(s) and 1 IPv6 address(es)" in evidence.lines[0]
    assert not FAULT.verify_undone(IB0, 0, host, evidence.undo_state)
    told = FAULT.undo(IB0, 0, host, evidence.undo_state).lines
    assert FAULT.verify_undone(IB0, 0, host, evidence.undo_state)
    assert state(host) == before
    assert any("route replace 10.200.0.0/16 via 10.128.255.254 dev ib0" in line for line in told)


def test_a_route_that_is_not_put_back_is_seen(host: ModelHost) -> None:
    undo_state = FAULT.inject(IB0, 0, host).undo_state
    host.ignore = {"replace"}
    FAULT.undo(IB0, 0, host, undo_state)
    assert not FAULT.verify_undone(IB0, 0, host, undo_state)


def test_an_undo_that_knows_nothing_brings_the_link_up(host: ModelHost) -> None:
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
        FAULT.prior(IB0, 0, host)


def test_the_interface_that_the_node_lives_by_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match="default route"):
        FAULT.prior(InterfaceDownParameters(interface="eth0"), 0, host)


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
        return ProgramResult(
            argv=tuple(argv), exit_status=0, stdout="" if argv[0] == "ss" else json.dumps(shown), stderr=""
        )

    host.programs = answer
    return host


def test_an_interface_that_others_lie_on_is_refused() -> None:
    vlan = {"ifname": "ib0.7", "link": "ib0", "flags": ["UP"]}
    with pytest.raises(HostError, match=r"ib0\.7 lie"):
        FAULT.prior(IB0, 0, answering(type_vlan=[vlan], **{"show_dev_ib0.7": [vlan]}))


def test_a_route_of_a_kind_that_we_could_not_write_again_is_refused() -> None:
    odd = {"dst": "10.7.0.0/16", "encap": "mpls", "flags": []}
    with pytest.raises(HostError, match="could not be put back"):
        FAULT.prior(IB0, 0, answering(route_show_dev=[odd]))


def test_addresses_and_routes_of_a_router_are_not_ours_to_put_back() -> None:
    info = {"local": "fd00::7", "prefixlen": 64, "dynamic": True}
    route = {"dst": "fd00::/64", "protocol": "ra", "metric": 100, "flags": []}
    host = answering(addr_show=[{"addr_info": [info]}], route_show_dev=[route])
    before = json.loads(FAULT.prior(IB0, 0, host)["before"])
    assert (before["routes"], before["addresses"]) == ({"-4": [], "-6": []}, [])
