"""Faults are found by being there; two of one name are a mistake that is told."""

from __future__ import annotations

from types import ModuleType
from typing import Literal

import pytest
from pydantic import ValidationError

from gameday.faults.base import Fault
from gameday.faults.registry import collect, fault_for, known_faults, parameter_models, parse_parameters
from gameday.faults.xid import XidFault, XidParameters
from gameday.plan.models import FaultParameters, Plan


def test_every_fault_says_what_a_person_must_know() -> None:
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
    assert len(str(error.value)) < 500


def _module(name: str, type_name: object) -> ModuleType:
    module = ModuleType(name)
    parameters = type("P", (FaultParameters,), {"__annotations__": {"type": type_name}, "__module__": name})
    module.F = type("F", (XidFault,), {"__module__": name, "parameters": parameters})  # type: ignore[attr-defined]
    return module


def test_two_faults_of_one_name_are_refused_with_both_places() -> None:
    with pytest.raises(ValueError, match=r"'same' is defined twice: a\.F and b\.F"):
        collect([_module("a", Literal["same"]), _module("b", Literal["same"])])


def test_a_fault_without_a_name_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a\.F: .*Literal of one name"):
        collect([_module("a", str)])


def test_imported_and_abstract_classes_are_not_faults_of_a_module() -> None:
    module = ModuleType("m")
    module.Fault, module.XidFault = Fault, XidFault  # type: ignore[attr-defined]
    assert collect([module]) == {}


@pytest.mark.parametrize("xid", [0, 1000, -1, "79; reboot", None, 7.5, True])
def test_what_is_no_xid_is_refused_with_examples(xid: object) -> None:
    with pytest.raises(ValidationError, match="79"):
        parse_parameters({"type": "xid", "xid": xid})


def test_unknown_keys_are_refused() -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        parse_parameters({"type": "xid", "xid": 79, "gpus": 1})
