"""Several faults at once: all go in, all come out, each by itself; what cannot go together is refused."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.agent.inject import Injection
from gameday.errors import HostError
from gameday.faults.base import Claim
from gameday.faults.compound import CompoundFault, CompoundParameters
from gameday.faults.registry import known_faults, parse_parameters
from gameday.host.base import ProgramResult
from gameday.values.results import Cleanliness
from tests.faults.gpu_model import ModelHost

CAP = {"type": "power_cap", "watts": 300, "gpu": 1}

EXPORTER = {"type": "unit_stopped", "unit": "nvidia-dcgm-exporter"}

XID = {"type": "xid", "xid": 79}

FAULT = CompoundFault()


def compound(*parts: dict[str, Any], **more: Any) -> CompoundParameters:
    found = parse_parameters({"type": "compound", "parts": list(parts), **more})
    assert isinstance(found, CompoundParameters)
    return found


def test_all_parts_are_in_and_their_prior_values_kept_apart() -> None:
    host = ModelHost()
    evidence = FAULT.inject(compound(CAP, EXPORTER, XID), 0, host)
    assert host.gpus()[1].power_limit_w == 300
    assert not host.machine.is_active("nvidia-dcgm-exporter")
    assert evidence.undo_state["1.watts"] == "700"
    assert evidence.undo_state["2.before"] == "loaded, active"
    assert {line.split(":")[0] for line in evidence.lines} == {"1 power_cap", "2 unit_stopped", "3 xid"}


def test_all_parts_come_out_and_are_read_back_in_another_process() -> None:
    host = ModelHost()
    parameters = compound(CAP, EXPORTER, XID)
    state = FAULT.inject(parameters, 0, host).undo_state
    assert not FAULT.verify_undone(parameters, 0, host, state)
    lines = FAULT.undo(compound(CAP, EXPORTER, XID), 0, host, state).lines
    assert [line[0] for line in lines] == ["3", "2", "1"]
    assert FAULT.verify_undone(parameters, 0, host, state)
    assert host.gpus()[1].power_limit_w == 700
    assert host.machine.is_active("nvidia-dcgm-exporter")


def test_a_part_that_cannot_be_undone_keeps_no_other_in(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModelHost()
    injection = Injection({"type": "compound", "parts": [EXPORTER, CAP]}, 0, host)
    state = injection.fault.inject(injection.parameters, 0, host).undo_state
    host.ignore = {"-pl"}
    outcome = injection.take_out(state)
    assert outcome.cleanliness is Cleanliness.DIRTY
    assert host.machine.is_active("nvidia-dcgm-exporter")
    assert host.gpus()[1].power_limit_w == 300


def test_a_part_whose_undo_raises_is_reported_and_the_others_come_out() -> None:
    class Refusing(ModelHost):
        refusing = False

        def run(self, argv: Any, timeout_s: float) -> ProgramResult:
            if self.refusing and argv[0] == "systemctl":
                raise HostError("systemd is away")
            return super().run(argv, timeout_s)

    host = Refusing()
    parameters = compound(CAP, EXPORTER)
    state = FAULT.inject(parameters, 0, host).undo_state
    host.refusing = True
    assert "2 unit_stopped: NOT UNDONE: systemd is away" in FAULT.undo(parameters, 0, host, state).lines
    assert host.gpus()[1].power_limit_w == 700
    with pytest.raises(HostError, match="part 2, unit_stopped: systemd is away"):
        FAULT.verify_undone(parameters, 0, host, state)


def test_a_part_that_is_still_in_outweighs_one_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModelHost()
    parameters = compound(CAP, EXPORTER)
    state = FAULT.inject(parameters, 0, host).undo_state

    def unreadable(*_: object) -> bool:
        raise HostError("systemd is away")

    monkeypatch.setattr(type(known_faults()["unit_stopped"]), "verify_undone", unreadable)
    assert FAULT.verify_undone(parameters, 0, host, state) is False


def test_a_part_that_is_refused_is_named_and_nothing_went_in() -> None:
    host = ModelHost()
    host.machine.set_unit("nvidia-dcgm-exporter", active=False)
    with pytest.raises(HostError, match="part 2, unit_stopped: nvidia-dcgm-exporter is inactive already"):
        FAULT.prior_state(compound(CAP, EXPORTER), 0, host)
    assert host.gpus()[1].power_limit_w == 700


def test_a_part_that_ends_by_itself_ends_the_hold_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host = ModelHost()
    monkeypatch.setattr("gameday.faults.unit_stopped._LOOK_EVERY_S", 0.01)
    parameters = compound(CAP, EXPORTER)
    FAULT.inject(parameters, 0, host)
    host.machine.set_unit("nvidia-dcgm-exporter", active=True)
    with pytest.raises(HostError, match="part 2, unit_stopped: nvidia-dcgm-exporter runs again"):
        FAULT.hold_and_tell(parameters, 0, host, threading.Event(), print)


def test_the_hold_ends_when_it_is_asked_to() -> None:
    host, ended = ModelHost(), threading.Event()
    parameters = compound(CAP, EXPORTER)
    FAULT.inject(parameters, 0, host)
    threading.Timer(0.05, ended.set).start()
    assert FAULT.hold_and_tell(parameters, 0, host, ended, print) == ()


def test_what_a_plan_writes_the_agent_reads() -> None:
    parameters = compound(CAP, {"type": "repeated", "fault": EXPORTER, "times": 2, "every": "4s"}, hold="10s")
    assert parse_parameters(parameters.model_dump(mode="json")) == parameters
    assert {part.hold.total_seconds() for part in parameters.parts} == {10}


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ([XID], "2 to 4 parts, not 1"),
        ([XID] * 5, "2 to 4 parts, not 5"),
        ([XID, {"type": "compound", "parts": [XID, XID]}], "cannot be a part of another"),
        ([XID, {**XID, "hold": "5s"}], "held together"),
        ([CAP, CAP], "both take power limit"),
        ([CAP, {**CAP, "gpu": None}], "both take power limit"),
        ([{"type": "gpu_burn"}, {"type": "gpu_memory"}], "both take work"),
        ([{"type": "dcgm_pause"}, {"type": "unit_stopped", "unit": "nvidia-dcgm"}], "both take DCGM's host engine"),
        ([{"type": "gpu_removed", "gpu": 3}, CAP], "both take the GPU on the PCI bus"),
        ([{"type": "node_reboot"}, EXPORTER], "both take the node itself"),
        ([{"type": "component_frozen", "component": "other"}] * 2, "both take other"),
    ],
)
def test_what_cannot_go_together_is_refused(parts: list[dict[str, Any]], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        compound(*parts)


@pytest.mark.parametrize("parts", [[XID, XID], [CAP, {**CAP, "gpu": 2}], [{"type": "node_reboot"}, XID]])
def test_parts_without_a_common_claim_go_together(parts: list[dict[str, Any]]) -> None:
    assert len(compound(*parts).parts) == 2


def test_claims_conflict_on_one_gpu_or_on_one_that_is_not_chosen_yet() -> None:
    assert Claim("a", 1).conflicts_with(Claim("a"))
    assert not Claim("a", 1).conflicts_with(Claim("a", 2))
    assert not Claim("a", shared=True).conflicts_with(Claim("a", shared=True))
    assert Claim("a").conflicts_with(Claim("a", shared=True))


def test_the_dangers_and_the_reach_are_those_of_the_parts() -> None:
    parameters = compound(XID, {"type": "gpu_burn"})
    assert set(parameters.dangers()) == {"gpu_burn"}
    reach = FAULT.reach(parameters)
    assert reach.layer == "kernel log (xid) + hardware load (gpu_burn)"
    assert any("Konduktor" in detector for detector in reach.seen_by)
