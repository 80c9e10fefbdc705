"""The registry of faults: found by their file, and refused where their class is wrong."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import pytest
from pydantic import ValidationError

from gameday.faults import net_qdisc
from gameday.faults.base import Evidence, Fault
from gameday.faults.registry import fault_for, faults_in, known_faults, parameter_models, parse_parameters
from gameday.faults.xid import XidFault, XidParameters
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.plan.models import Plan


def test_every_fault_of_ours_names_its_reach_and_its_readers() -> None:
    assert known_faults()
    for name, fault in known_faults().items():
        assert fault.parameters.model_fields["type"].default == name
        assert fault.summary
        assert fault.does_not_reach
        assert fault.seen_by


def test_a_plan_resolves_its_fault_through_the_registry() -> None:
    document = {
        "apiVersion": "gameday/v1",
        "name": "a",
        "title": "t",
        "hypothesis": "h",
        "fault": {"type": "xid", "xid": 79, "hold": "5s"},
        "expect": {"taints": [{"key": "a", "within": "30s"}]},
    }
    plan = Plan.model_validate(document, context={"faults": parameter_models()})
    assert isinstance(plan.fault, XidParameters)
    assert isinstance(fault_for(plan.fault), XidFault)


def test_what_a_plan_writes_the_agent_reads() -> None:
    parameters = XidParameters(xid=79, gpu=3, repeat=2)
    assert parse_parameters(parameters.model_dump(mode="json")) == parameters


@pytest.mark.parametrize("data", [{}, {"type": "nope"}, {"type": None}, {"type": ["xid"]}, {"type": "x" * 10_000}])
def test_an_unknown_fault_names_the_known_ones(data: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"unknown fault type .*known: .*xid") as error:
        parse_parameters(data)
    assert len(str(error.value)) < 700


def test_an_unknown_fault_suggests_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown fault type 'power_cup': .* did you mean power_cap\?"):
        parse_parameters({"type": "power_cup"})


def _module(name: str, type_name: object) -> ModuleType:
    module = ModuleType(name)
    parameters = type("P", (FaultParameters,), {"__annotations__": {"type": type_name}, "__module__": name})
    module.F = type("F", (XidFault,), {"__module__": name, "parameters": parameters})  # type: ignore[attr-defined]
    return module


def test_two_faults_of_one_name_in_a_module_are_refused_with_both_classes() -> None:
    module = _module("a", Literal["same"])
    module.G = type("G", (module.F,), {"__module__": "a"})  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"'same' is defined twice in a: F and G"):
        faults_in(module)


def test_a_fault_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.F: .*Literal of one name"):
        faults_in(_module("a", str))


def test_a_fault_that_lacks_a_method_is_refused_with_the_methods_name() -> None:
    class Unfinished(Fault[FaultParameters]):
        def inject(self, parameters: FaultParameters, gpu: int, host: Host) -> Evidence:
            return Evidence()

    module = ModuleType(__name__)
    module.Unfinished = Unfinished  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"Unfinished lacks undo, verify_undone, parameters, layer, summary"):
        faults_in(module)


def test_imported_classes_and_bases_of_faults_are_not_faults_of_a_module() -> None:
    module = ModuleType(net_qdisc.__name__)
    module.Fault, module.XidFault, module.Base = Fault, XidFault, net_qdisc.QdiscFault  # type: ignore[attr-defined]
    assert faults_in(module) == {}


@pytest.mark.parametrize("xid", [0, 1000, -1, "79; reboot", None, 7.5, True])
def test_what_is_no_xid_is_refused_with_examples(xid: object) -> None:
    with pytest.raises(ValidationError, match="79"):
        parse_parameters({"type": "xid", "xid": xid})


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        parse_parameters({"type": "xid", "xid": 79, "gpus": 1})
