"""The behaviour that netem and tbf share: in, out, and the queue of somebody else."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from gameday.errors import HostError
from gameday.faults.net_netem import NetemFault, NetemParameters
from gameday.faults.net_qdisc import HANDLE, QdiscFault
from gameday.faults.net_tbf import TbfFault, TbfParameters
from gameday.faults.network import InterfaceParameters
from tests.faults.gpu_model import ModelHost

NETEM = NetemParameters(interface="ib0", delay=timedelta(milliseconds=50), jitter=timedelta(milliseconds=10), loss=0.01)

TBF = TbfParameters(interface="ib0", rate_mbit=10)

Case = tuple[QdiscFault[Any], InterfaceParameters]

BOTH = pytest.mark.parametrize("case", [(NetemFault(), NETEM), (TbfFault(), TBF)], ids=["netem", "tbf"])


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
def test_an_undo_without_state_takes_ours_out_too(case: Case, host: ModelHost) -> None:
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
def test_a_tc_that_accepts_and_does_nothing_is_no_injection(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    host.ignore = {"add"}
    with pytest.raises(HostError, match="it is missing"):
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
        fault.prior_state(parameters.model_copy(update={"interface": "ib9"}), 0, host)


@BOTH
def test_the_interface_that_the_node_needs_is_refused_with_the_reason(case: Case, host: ModelHost) -> None:
    fault, parameters = case
    with pytest.raises(HostError, match="default route"):
        fault.prior_state(parameters.model_copy(update={"interface": "eth0"}), 0, host)


def test_a_plan_that_means_the_nodes_own_interface_is_dangerous_and_goes_in(host: ModelHost) -> None:
    meant = NETEM.model_copy(update={"interface": "eth0", "control_plane": True})
    assert not NETEM.dangers()
    assert "eth0" in meant.dangers()["net_netem"]
    before = shown(host, "eth0")
    state = NetemFault().inject(meant, 0, host).undo_state
    NetemFault().undo(meant, 0, host, state)
    assert shown(host, "eth0") == before


def test_a_queue_that_somebody_else_shapes_is_refused(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "1:", "netem", "delay", "1ms"), 1)
    with pytest.raises(HostError, match="netem of somebody else"):
        TbfFault().prior_state(TBF, 0, host)


def test_the_message_about_another_game_days_queue_says_how_to_remove_it(host: ModelHost) -> None:
    NetemFault().inject(NETEM, 0, host)
    with pytest.raises(HostError, match="gameday reap"):
        NetemFault().prior_state(NETEM, 0, host)


def test_a_queue_that_cannot_be_restored_exactly_is_refused(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "11:", "fq_codel", "limit", "500"), 1)
    with pytest.raises(HostError, match="fq_codel that somebody set"):
        NetemFault().prior_state(NETEM, 0, host)


def test_a_simple_queue_that_somebody_set_comes_back_with_its_handle(host: ModelHost) -> None:
    host.run(("tc", "qdisc", "add", "dev", "ib0", "root", "handle", "12:", "pfifo", "limit", "500"), 1)
    before = shown(host)
    state = NetemFault().inject(NETEM, 0, host).undo_state
    NetemFault().undo(NETEM, 0, host, state)
    assert shown(host) == before
