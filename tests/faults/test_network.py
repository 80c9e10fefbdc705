"""The interfaces that a node needs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.net_netem import NetemFault, NetemParameters
from gameday.faults.network import essential_interfaces
from gameday.host.base import ProgramResult
from tests.faults import recorded_iproute2 as recorded
from tests.host.fake import FakeHost

NETEM = NetemParameters(interface="ib0", delay=timedelta(milliseconds=50), jitter=timedelta(milliseconds=10), loss=0.01)


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
    assert essential_interfaces(host)["eth0"] == "bond0.100 lies on it, and it carries the node's default route"
    with pytest.raises(HostError, match=r"eth1 is not touched: bond0\.100 lies on it"):
        NetemFault().prior_state(NETEM.model_copy(update={"interface": "eth1"}), 0, host)


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
    with pytest.raises(HostError, match="the interface that the node needs is not known"):
        NetemFault().prior_state(NETEM, 0, host)
    assert NetemFault().prior_state(NETEM.model_copy(update={"control_plane": True}), 0, host)


def test_a_node_needs_its_default_route_its_kubelets_peers_and_their_ports() -> None:
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
    found = essential_interfaces(host)
    assert set(found) == {"lo", "bond0", "vlan7", "eth0", "eth1", "eth7"}
    assert "10.0.0.1" in found["vlan7"]
    assert found["eth0"].startswith("bond0 lies on it")
