"""The expectations of a canary that a plan may have, and the meaning of their bounds."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gameday.errors import DocumentError
from gameday.expect.canary import ExpectedAllReduce, ExpectedCanary
from gameday.faults.registry import parameter_models
from gameday.plan.load import parse_plan
from gameday.remediations.registry import known_remediations
from gameday.shipped import shipped

PINGS = {"measure": "round-trip time", "interface": "ib0"}


def canary(**given: Any) -> ExpectedCanary:
    return ExpectedCanary.model_validate(given)


@pytest.mark.parametrize(
    ("expected", "held", "broken"),
    [
        (canary(falls_below="50%"), 49.0, 50.0),
        (canary(stays_above="90%"), 91.0, 90.0),
        (canary(**PINGS, rises_above="200%"), 201.0, 200.0),
        (canary(**PINGS, stays_below="200%"), 199.0, 200.0),
    ],
)
def test_bounds_are_shares_of_the_baseline(expected: ExpectedCanary, held: float, broken: float) -> None:
    assert expected.holds_during(held, 100.0)
    assert not expected.holds_during(broken, 100.0)


def test_a_value_after_the_undo_must_be_within_the_tolerance() -> None:
    bandwidth, trip = canary(falls_below="50%"), canary(**PINGS, rises_above="200%")
    assert (bandwidth.holds_after(40.0, 100.0), bandwidth.holds_after(90.0, 100.0)) == (False, True)
    assert (trip.holds_after(300.0, 100.0), trip.holds_after(110.0, 100.0)) == (False, True)


def test_a_bound_is_shown_in_the_measures_unit() -> None:
    assert canary(falls_below="50%").bound_during(335.0) == "< 167.5 GB/s (50% of 335)"
    assert canary(falls_below="50%").expectation == "all-reduce bus bandwidth falls below 50% of its baseline"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "exactly one of"),
        ({"falls_below": "50%", "stays_above": "40%"}, "exactly one of"),
        ({"rises_above": "200%"}, "judged by falls_below"),
        ({**PINGS, "falls_below": "50%"}, "judged by rises_above"),
        ({"measure": "answered pings", "falls_below": "50%"}, "needs the interface"),
        ({"falls_below": "half"}, "written in percent"),
        ({"falls_below": 50}, "written in percent"),
        ({**PINGS, "rises_above": "200%", "peer": "ib-router; reboot"}, "IPv4 or IPv6"),
        ({**PINGS, "rises_above": "200%", "interface": "ib0/.."}, "pattern"),
    ],
)
def test_an_expectation_that_cannot_be_judged_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ExpectedCanary.model_validate(given)


def test_an_expectation_is_read_back_from_its_own_json() -> None:
    expected = canary(**PINGS, rises_above="1000.5%")
    assert ExpectedCanary.model_validate_json(expected.model_dump_json()) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"interface": "ib0"}, "give exactly one of falls_below, stays_above"),
        ({"interface": "ib0", "falls_below": "50%", "stays_above": "10%"}, "give exactly one"),
        ({"falls_below": "50%"}, "interface"),
        ({"interface": "-ib0", "falls_below": "50%"}, "pattern"),
        ({"interface": "ib0", "falls_below": "50%", "nodes": 1}, "greater than or equal to 2"),
        ({"interface": "ib0", "rises_above": "200%"}, "rises_above"),
        ({"interface": "ib0", "falls_below": "50%", "hca": "mlx5_0"}, "only NCCL uses an RDMA adapter"),
        ({"interface": "ib0", "falls_below": "50%", "backend": "gloo"}, "'tcp' or 'nccl'"),
    ],
)
def test_an_all_reduce_over_nodes_has_one_bound_and_an_interface(given: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        ExpectedAllReduce.model_validate(given)


def test_an_all_reduce_over_nodes_is_no_measure_of_the_canary() -> None:
    with pytest.raises(ValidationError, match=r"expect\.all_reduce"):
        canary(measure="all-reduce over nodes", falls_below="50%")


def test_an_all_reduce_over_nodes_is_judged_by_its_baseline() -> None:
    expected = ExpectedAllReduce.model_validate({"interface": "ib0", "falls_below": "25%", "tolerance": "50%"})
    assert expected.feels_fault
    assert (expected.holds_during(0.0, 4.0), expected.holds_during(1.0, 4.0)) == (True, False)
    assert (expected.holds_after(2.0, 4.0), expected.holds_after(1.9, 4.0)) == (True, False)
    assert expected.expectation == "all-reduce over nodes falls below 25% of its baseline"


def test_an_all_reduce_takes_a_gpu_of_each_node_for_nccl_alone() -> None:
    given = {"interface": "ib0", "falls_below": "25%"}
    assert ExpectedAllReduce.model_validate(given).gpus == 0
    assert ExpectedAllReduce.model_validate(given | {"backend": "nccl", "hca": "mlx5_0"}).gpus == 1


@pytest.mark.parametrize("name", ["", "^mlx5_0", "=mlx5_0", "mlx5_0,mlx5_1", "mlx5_0:1", "m" * 64, "-mlx5_0"])
def test_an_adapters_name_cannot_be_nccls_syntax(name: str) -> None:
    with pytest.raises(ValidationError):
        ExpectedAllReduce.model_validate({"interface": "ib0", "falls_below": "1%", "backend": "nccl", "hca": name})


def test_a_wrong_nccl_variable_needs_a_canary_or_an_all_reduce_by_nccl() -> None:
    text = (shipped("plans") / "nccl-rdma-adapter-lost.yaml").read_text()
    faults, remediations = parameter_models(), known_remediations()
    assert parse_plan(text.encode(), "p.yaml", faults, remediations).plan.expect.canary is None
    by_tcp = text.replace("    backend: nccl\n", "").replace("    hca: mlx5_0\n", "")
    with pytest.raises(DocumentError) as refused:
        parse_plan(by_tcp.encode(), "p.yaml", faults, remediations)
    assert "backend: nccl" in str(refused.value)


def test_the_largest_block_is_measured_of_a_fault_that_holds_memory_alone() -> None:
    text = (shipped("plans") / "gpu-memory-fragmented.yaml").read_text()
    faults, remediations = parameter_models(), known_remediations()
    assert parse_plan(text.encode(), "p.yaml", faults, remediations).plan.expect.canary is not None
    other = text.replace("type: gpu_memory\n  mode: fragment", "type: numa")
    with pytest.raises(DocumentError) as refused:
        parse_plan(other.encode(), "p.yaml", faults, remediations)
    assert "only the fault gpu_memory holds memory" in str(refused.value.problems)
