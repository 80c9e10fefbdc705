"""netem and tbf: in, read back, out, and what was there before comes back; what is not ours is refused."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import HostError
from gameday.faults.net_netem import NetemFault, NetemParameters
from gameday.faults.net_qdisc import HANDLE, QdiscFault
from gameday.faults.net_tbf import TbfFault, TbfParameters
from gameday.faults.network import InterfaceParameters, lifelines
from gameday.host.base import ProgramResult
from tests.faults import recorded_iproute2 as recorded
from tests.faults.gpu_model import ModelHost
from tests.host.fake import FakeHost

NETEM = NetemParameters(interface="ib0", delay=timedelta(milliseconds=50), jitter=timedelta(milliseconds=10), loss=0.01)
TBF = TbfParameters(interface="ib0", rate_mbit=10)
Case = tuple[QdiscFault[Any], InterfaceParameters]
BOTH = pytest.mark.parametrize("case", [(NetemFault(), NETEM), (TbfFault(), TBF)], ids=["netem", "tbf"])


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()


def shown(host: ModelHost, interface: str = "ib0") -> list[dict[str, Any]]:
    return host.machine.network.interfaces[interface].qdiscs()


@BOTH
def test_it_goes_in_on_its_interface_alone_and_gives_the_queue_back(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    before = {name: shown(host, name) for name in host.machine.network.interfaces}
    evidence = fault.inject(parameters, 0, host)
    changed = [name for name in before if shown(host, name) != before[name]]
    assert changed == ["ib0"]
    assert shown(host)[0]["handle"] == HANDLE
    assert not fault.verify_undone(parameters, 0, host, evidence.undo_state)
    fault.undo(parameters, 0, host, evidence.undo_state)
    assert fault.verify_undone(parameters, 0, host, evidence.undo_state)
    assert {name: shown(host, name) for name in before} == before


@BOTH
def test_an_undo_that_knows_nothing_takes_ours_out_too(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    fault.inject(parameters, 0, host)
    fault.undo(parameters, 0, host, {})
    assert fault.verify_undone(parameters, 0, host, {})


@BOTH
def test_a_second_undo_does_nothing(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    state = fault.inject(parameters, 0, host).undo_state
    fault.undo(parameters, 0, host, state)
    assert "no qdisc of ours" in fault.undo(parameters, 0, host, state).lines[0]


@BOTH
def test_a_tc_that_says_yes_and_does_nothing_is_no_injection(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    host.ignore = {"add"}
    with pytest.raises(HostError, match="not there"):
        fault.inject(parameters, 0, host)


@BOTH
def test_an_undo_that_does_nothing_is_seen(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    state = fault.inject(parameters, 0, host).undo_state
    host.ignore = {"del"}
    fault.undo(parameters, 0, host, state)
    assert not fault.verify_undone(parameters, 0, host, state)


@BOTH
def test_an_interface_that_is_not_there_is_named(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    with pytest.raises(HostError, match='"ib9" does not exist'):
        fault.prior(parameters.model_copy(update={"interface": "ib9"}), 0, host)


@BOTH
def test_the_interface_that_the_node_lives_by_is_refused_with_the_reason(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    with pytest.raises(HostError, match="default route"):
        fault.prior(parameters.model_copy(update={"interface": "eth0"}), 0, host)


def test_a_plan_that_means_the_nodes_own_interface_is_dangerous_and_goes_in(host: ModelHost) -> None:
    meant = NETEM.model_copy(update={"interface": "eth0", "control_plane": True})
    assert not NETEM.dangers()
    assert "eth0" in meant.dangers()["net_netem"]
    before = shown(host, "eth0")
    state = NetemFault().inject(meant, 0, host).undo_state
    NetemFault().undo(meant, 0, host, state)
    assert shown(host, "eth0") == before


def test_what_somebody_else_shapes_is_left_alone(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "1:", "netem", "delay", "1ms"), 1)
    with pytest.raises(HostError, match="netem of somebody else"):
        TbfFault().prior(TBF, 0, host)


def test_what_another_game_day_left_says_how_to_get_rid_of_it(host: ModelHost) -> None:
    NetemFault().inject(NETEM, 0, host)
    with pytest.raises(HostError, match="gameday reap"):
        NetemFault().prior(NETEM, 0, host)


def test_a_queue_with_options_that_cannot_be_given_back_to_the_letter_is_refused(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "11:", "fq_codel", "limit", "500"), 1)
    with pytest.raises(HostError, match="fq_codel that somebody set"):
        NetemFault().prior(NETEM, 0, host)


def test_a_simple_queue_that_somebody_set_comes_back_with_its_handle(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "12:", "pfifo", "limit", "500"), 1)
    before = shown(host)
    state = NetemFault().inject(NETEM, 0, host).undo_state
    NetemFault().undo(NETEM, 0, host, state)
    assert shown(host) == before


@pytest.mark.parametrize(
    ("recorded_json", "wrong"),
    [
        (recorded.NETEM, ""),
        (recorded.NETEM.replace("0.05,", "0.2,"), "delay is 0.2"),
        (recorded.NETEM.replace('"loss":0.01', '"loss":0.1'), "loss is 0.1"),
    ],
)
def test_netem_is_read_back_as_iproute2_writes_it(recorded_json: str, wrong: str) -> None:
    assert wrong in NetemFault().differs(NETEM, json.loads(recorded_json)[0]["options"])
    assert bool(wrong) == bool(NetemFault().differs(NETEM, json.loads(recorded_json)[0]["options"]))


def test_tbf_is_read_back_with_the_kernels_rounding() -> None:
    options = json.loads(recorded.TBF)[0]["options"]
    parameters = TbfParameters(interface="ib0", rate_mbit=1000)
    assert "burst" in TbfFault().differs(parameters, options)  # recorded with a bucket of 1 MiB
    assert TbfFault().differs(parameters, options | {"burst": 1249500}) == ""


def real(argv_answers: dict[str, str]) -> FakeHost:
    """A host whose programs print what was recorded, by the end of their command line; anything else fails."""
    host = FakeHost()

    def answer(argv: Any) -> ProgramResult:
        line = " ".join(argv)
        found = next((text for end, text in argv_answers.items() if line.endswith(end)), None)
        status, err = (1, recorded.NO_SUCH_LINK) if found is None else (0, "")
        return ProgramResult(argv=tuple(argv), exit_status=status, stdout=found or "", stderr=err)

    host.programs = answer
    return host


def linked(name: str, parent: str = "") -> str:
    own = recorded.LINK_UP.replace('"link":"ib0p",', f'"link":"{parent}",' if parent else "")
    return own.replace('"ib0"', f'"{name}"')


def test_a_vlan_on_a_bond_protects_the_bonds_members_too() -> None:
    host = real(
        {
            "-4 route show default": '[{"dst":"default","gateway":"10.0.0.254","dev":"bond0.100","flags":[]}]',
            "-6 route show default": "[]",
            "state established": recorded.CONNECTIONS,
            **{f"route get 10.0.0.{host}": '[{"dst":"10.0.0.1","dev":"bond0.100","flags":[]}]' for host in (1, 7)},
            "show dev bond0.100": linked("bond0.100", "bond0"),
            "show dev bond0": linked("bond0"),
            "show master bond0": '[{"ifname":"eth0"},{"ifname":"eth1"}]',
            **{f"show dev {port}": linked(port) for port in ("eth0", "eth1")},
            **{f"show master {name}": recorded.NO_MEMBERS for name in ("bond0.100", "eth0", "eth1")},
        }
    )
    assert lifelines(host)["eth0"] == "bond0.100 lies on it, and it carries the node's default route"
    with pytest.raises(HostError, match=r"eth1 is not touched: bond0\.100 lies on it"):
        NetemFault().prior(NETEM.model_copy(update={"interface": "eth1"}), 0, host)


PROXIED = """0      0             127.0.0.1:41022     127.0.0.1:6443  users:(("kubelet",pid=1423,fd=12))
0      0              10.0.0.5:51022       10.0.0.1:6443 users:(("nginx",pid=900,fd=7))
0      0      [::ffff:10.0.0.5]:10250 [::ffff:10.0.0.7]:38322 users:(("kubelet",pid=1423,fd=20))
"""
K3S = '0      0              10.0.0.5:51022       10.0.0.1:6443 users:(("k3s-agent",pid=1423,fd=12))\n'


@pytest.mark.parametrize("connections", [PROXIED, K3S])
def test_a_node_whose_way_to_the_api_server_is_unknown_is_refused(connections: str) -> None:
    host = real(
        {
            "show dev ib0": recorded.LINK_UP,
            "qdisc show dev ib0": recorded.NOQUEUE,
            "route show default": "[]",
            "state established": connections,
        }
    )
    with pytest.raises(HostError, match="nobody knows which interface the node lives by"):
        NetemFault().prior(NETEM, 0, host)
    assert NetemFault().prior(NETEM.model_copy(update={"control_plane": True}), 0, host)


def test_lifelines_are_the_default_route_the_kubelets_peers_and_what_lies_below() -> None:
    host = real(
        {
            "-4 route show default": '[{"dst":"default","gateway":"10.0.0.254","dev":"bond0","flags":[]}]',
            "-6 route show default": "[]",
            "state established": recorded.CONNECTIONS,
            "route get 10.0.0.1": '[{"dst":"10.0.0.1","dev":"vlan7","flags":[]}]',
            "route get 10.0.0.7": '[{"dst":"10.0.0.7","dev":"vlan7","flags":[]}]',
            "show dev bond0": linked("bond0"),
            "show master bond0": '[{"ifname":"eth0"},{"ifname":"eth1"}]',
            "show dev vlan7": linked("vlan7", "eth7"),
            **{f"show dev {port}": linked(port) for port in ("eth0", "eth1", "eth7")},
            **{f"show master {name}": recorded.NO_MEMBERS for name in ("vlan7", "eth0", "eth1", "eth7")},
        }
    )
    found = lifelines(host)
    assert set(found) == {"lo", "bond0", "vlan7", "eth0", "eth1", "eth7"}
    assert "10.0.0.1" in found["vlan7"]
    assert found["eth0"].startswith("bond0 lies on it")


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"delay": timedelta(), "jitter": timedelta(), "loss": 0.0}, "does nothing"),
        ({"jitter": timedelta(seconds=1)}, "more than the delay"),
        ({"loss": 1.5}, "at most 100%"),
        ({"interface": "a" * 16}, "at most 15|pattern"),
        ({"interface": "-rf"}, "pattern"),
        ({"interface": "ib0; reboot"}, "pattern"),
        ({"rate_mbit": 0}, "greater"),
    ],
)
def test_parameters_out_of_bounds_are_refused(changes: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        NetemParameters.model_validate(NETEM.model_dump() | changes)
