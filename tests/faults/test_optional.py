"""The optional parts of faults: found by their method, and joined where a fault is made of others."""

from __future__ import annotations

import inspect
import threading
from typing import Any

import pytest
from pydantic import BaseModel

from gameday.agent.task import PriorNote
from gameday.faults import optional
from gameday.faults.base import BUS, NODE, CanaryJob, Claim, NodeNeeds
from gameday.faults.optional import (
    account_of,
    canary_job_of,
    claims_of,
    keep_in,
    needs_of,
    reach_of,
    rights_of,
    takes_node_down,
    warnings_of,
)
from gameday.faults.registry import fault_for, known_faults, parse_parameters
from tests.faults.gpu_model import ModelHost

PARTS: list[Any] = [
    one for one in vars(optional).values() if inspect.isclass(one) and one.__module__ == optional.__name__
]
XID = {"type": "xid", "xid": 79}
CAP = {"type": "power_cap", "watts": 300, "gpu": 1}
ECC = {"type": "ecc_off", "gpu": 2, "reset": True}
ENVIRONMENT = {"type": "nccl_environment", "variables": {"NCCL_IB_DISABLE": 1}}
CUDA = {"type": "cuda_error", "error": "launch-failed", "namespace": "ml", "selector": {"app": "train"}}


def compound(*parts: dict[str, Any]) -> Any:
    return parse_parameters({"type": "compound", "parts": list(parts)})


def repeated(fault: dict[str, Any]) -> Any:
    return parse_parameters({"type": "repeated", "fault": fault, "times": 2, "every": "2s"})


@pytest.mark.parametrize("name", sorted(known_faults()))
def test_a_faults_optional_methods_are_called_and_answer_as_the_interface_says(name: str) -> None:
    """A fault does not inherit the interface, so that no type checker compares the two."""
    fault = known_faults()[name]
    for part in PARTS:
        (method,) = (one for one, member in vars(part).items() if inspect.isfunction(member) and one[0] != "_")
        if isinstance(fault, part):
            own, wanted = (inspect.signature(getattr(one, method)) for one in (type(fault), part))
            assert [*own.parameters] == [*wanted.parameters]
            assert own.return_annotation in (wanted.return_annotation, *wanted.return_annotation.split(" | "))


def test_a_compound_answers_as_its_parts_do_together() -> None:
    parameters = compound(ECC, CAP, ENVIRONMENT)
    assert claims_of(parameters) == tuple(claim for part in parameters.parts for claim in claims_of(part))
    assert Claim(BUS, 2, shared=True) in claims_of(parameters)
    assert needs_of(parameters) == NodeNeeds(idle_gpu=True, operands_away=True, operands_away_to_undo=True)
    assert canary_job_of(parameters) == CanaryJob(environment={"NCCL_IB_DISABLE": "1"})
    assert len(warnings_of(parameters)) == 2
    assert rights_of(parameters).privileged
    assert not takes_node_down(parameters)
    assert takes_node_down(compound({"type": "node_reboot"}, XID))


def test_a_repeated_fault_answers_as_its_fault_does() -> None:
    parameters = repeated(CAP)
    for question in (claims_of, needs_of, canary_job_of, warnings_of, reach_of, rights_of, account_of):
        assert question(parameters) == question(parameters.fault)  # type: ignore[operator]


def test_a_fault_made_of_others_keeps_the_account_the_pods_and_the_time_that_they_need() -> None:
    alone = parse_parameters(CUDA)
    for parameters in (repeated(CUDA), compound(repeated(CUDA), XID)):
        assert account_of(parameters) == account_of(alone) == "gameday-cuda-error"
        assert parameters.wanted_pods() == alone.wanted_pods()
        assert parameters.longest_injection == alone.longest_injection


def test_operands_do_not_leave_for_a_fault_that_goes_in_again_after_they_are_back() -> None:
    assert needs_of(compound(XID, repeated(ECC))) == NodeNeeds(idle_gpu=True)


def test_a_line_in_the_log_shares_not_even_the_node() -> None:
    assert claims_of(parse_parameters(XID)) == ()
    assert claims_of(parse_parameters({"type": "node_reboot"})) == (Claim(NODE),)


def test_a_part_tells_its_notes_through_the_faults_it_is_in(monkeypatch: pytest.MonkeyPatch) -> None:
    note, ended, told = PriorNote(undo_state={"a": "b"}), threading.Event(), list[BaseModel]()

    def hold_and_tell(*given: Any) -> None:
        given[-1](note)
        ended.set()

    kind = type(known_faults()["xid"])
    monkeypatch.setattr(kind, "hold_and_tell", hold_and_tell, raising=False)
    parameters = compound(repeated(XID), CAP)
    host = ModelHost()
    fault_for(parameters).inject(parameters, 0, host)
    assert keep_in(parameters, 0, host, ended, told.append)[0].startswith("1 repeated: ended")
    assert told == [note]
