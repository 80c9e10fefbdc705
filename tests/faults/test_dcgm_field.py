"""A value in DCGM's cache: read back, held against real samples, and out from whatever state was kept."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from gameday.errors import HostBusyError, HostError
from gameday.faults.dcgm_field import FIELDS, DcgmFieldFault
from gameday.faults.dcgm_pause import DcgmPauseFault
from gameday.faults.registry import parse_parameters
from gameday.host.base import ProgramResult
from gameday_rehearsal.nodes.dcgm import BY_ID
from tests.faults.dcgm_model import REMAP, TEMPERATURE, XID, Held, answering, cached, of
from tests.faults.gpu_model import ModelHost
from tests.host.fake import result

FIELD, PAUSE = DcgmFieldFault(), DcgmPauseFault()


@pytest.mark.parametrize("name", sorted(FIELDS))
def test_every_field_of_the_table_goes_in_is_read_back_and_comes_out(host: ModelHost, name: str) -> None:
    bounds = FIELDS[name]
    parameters = of(name, None if bounds.fault is not None else min(bounds.low + 3, bounds.high))
    before = cached(host, name, 2)
    evidence = FIELD.inject(parameters, 2, host)
    assert cached(host, name, 2) == float(parameters.injected)
    assert f"--gpuid 2 -f {bounds.id} -v {parameters.injected}" in evidence.lines[1]
    assert evidence.lines[2].endswith(f"shows {parameters.injected}")
    assert not FIELD.verify_undone(parameters, 2, host, evidence.undo_state)
    FIELD.undo(parameters, 2, host, evidence.undo_state)
    assert FIELD.verify_undone(parameters, 2, host, evidence.undo_state)
    host.clock.pass_by(10)
    if bounds.id in BY_ID and before is not None and bounds.sampled:
        assert cached(host, name, 2) == pytest.approx(before, rel=0.1), "real samples are back"


def test_only_the_chosen_gpu_changes_and_nothing_that_nvml_shows(host: ModelHost) -> None:
    seen = [sample.model_dump() for sample in host.gpus()]
    FIELD.inject(of(REMAP, gpu=1), 0, host)
    assert [cached(host, REMAP, gpu) for gpu in range(4)] == [0, 1, 0, 0]
    assert [sample.row_remap_failure for sample in host.gpus()] == [sample["row_remap_failure"] for sample in seen]


def test_a_real_sample_takes_the_place_of_a_value_that_nobody_holds(host: ModelHost) -> None:
    parameters = of(TEMPERATURE)
    evidence = FIELD.inject(parameters, 0, host)
    host.clock.pass_by(3.1)
    assert cached(host, TEMPERATURE) != 95
    assert "not ours: left as it is" in FIELD.undo(parameters, 0, host, evidence.undo_state).lines[0]
    assert FIELD.verify_undone(parameters, 0, host, evidence.undo_state)


def test_a_held_value_is_the_newest_at_every_moment(host: ModelHost) -> None:
    parameters, seen = of(TEMPERATURE), []
    FIELD.inject(parameters, 0, host)

    def second() -> None:
        for _ in range(4):
            host.clock.pass_by(0.25)
            seen.append(cached(host, TEMPERATURE))

    assert FIELD.hold(parameters, 0, host, Held(12, second)) == ("injected 12 times more while held",)
    assert set(seen) == {95}


def test_an_xid_stays_without_being_injected_again_which_would_be_another_xid(host: ModelHost) -> None:
    parameters = of(XID, 95)
    FIELD.inject(parameters, 0, host)
    injections = [argv for argv in host.ran if "--inject" in argv]
    FIELD.hold(parameters, 0, host, Held(5, lambda: None))
    host.clock.pass_by(60)
    assert cached(host, XID) == 95
    assert [argv for argv in host.ran if "--inject" in argv] == injections


def test_a_hold_that_can_no_longer_inject_ends_the_fault(host: ModelHost) -> None:
    parameters = of(TEMPERATURE)
    FIELD.inject(parameters, 0, host)
    host.machine.set_unit("nvidia-dcgm", active=False)
    with pytest.raises(HostError, match="is nvidia-dcgm running"):
        FIELD.hold(parameters, 0, host, Held(5, lambda: None))


def test_an_undo_without_state_leaves_no_value_until_the_next_sample(host: ModelHost) -> None:
    for name, value in ((REMAP, 1), (XID, 48), ("DCGM_FI_DEV_POWER_USAGE", 900)):
        parameters = of(name, value)
        FIELD.inject(parameters, 3, host)
        assert "no value" in FIELD.undo(parameters, 3, host, {}).lines[0]
        assert FIELD.verify_undone(parameters, 3, host, {})
        assert not host.machine.cache.shown(BY_ID[FIELDS[name].id])[0, 3], "an exporter skips a blank"
    host.clock.pass_by(10)
    assert cached(host, REMAP, 3) == 0


def test_undo_is_idempotent_and_takes_the_gpu_from_its_state(host: ModelHost) -> None:
    parameters = of(REMAP)
    evidence = FIELD.inject(parameters, 1, host)
    for _ in range(2):
        FIELD.undo(parameters, 0, host, evidence.undo_state)
        assert FIELD.verify_undone(parameters, 0, host, evidence.undo_state)
    assert cached(host, REMAP, 1) == 0


def test_a_value_that_is_there_already_is_refused(host: ModelHost) -> None:
    with pytest.raises(HostError, match=r"ROW_REMAP_FAILURE of GPU 0 is 0 already: nothing would change"):
        FIELD.prior_state(of(REMAP, 0), 0, host)


def test_a_gpu_that_is_not_there_changes_nothing(host: ModelHost) -> None:
    with pytest.raises(HostError, match="no GPU 9 on this node"):
        FIELD.prior_state(of(REMAP, gpu=9), 0, host)
    assert host.ran == []


def test_success_that_reading_back_does_not_show_is_an_error() -> None:
    accepted = result(["dcgmi"], stdout="Successfully injected field info.\n")
    rows = result(["dcgmi"], stdout="#Entity   RRF\nID\nGPU 0           0\n")
    host = answering({"--inject": accepted, "dmon": rows})
    with pytest.raises(HostError, match="3 times dmon shows 0"):
        FIELD.inject(of(REMAP), 0, host)
    assert len([argv for argv in host.ran if "--inject" in argv]) == 3


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            result(["dcgmi"], 255, stdout="Error: Unable to inject info. Return: Bad parameter passed to function\n"),
            r"exit 255: Error: Unable to inject info\. Return: Bad parameter",
        ),
        (result(["dcgmi"]), "exit 0: no output"),
    ],
)
def test_a_refused_injection_quotes_dcgmi(answer: ProgramResult, message: str) -> None:
    rows = result(["dcgmi"], stdout="GPU 0           0\n")
    with pytest.raises(HostError, match=message):
        FIELD.inject(of(REMAP), 0, answering({"--inject": answer, "dmon": rows}))


def test_a_dmon_without_the_gpus_row_is_an_error() -> None:
    rows = result(["dcgmi"], stdout="#Entity   RRF\nID\nGPU 1           0\n")
    with pytest.raises(HostError, match="no row for GPU 0"):
        FIELD.prior_state(of(REMAP), 0, answering({"dmon": rows}))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"field": "DCGM_FI_DEV_NONSENSE"}, "Input should be"),
        ({"field": TEMPERATURE, "value": 201}, r"takes -100 to 200 \(°C\), not 201"),
        ({"field": TEMPERATURE, "value": "0x5F"}, "not a number: write it in decimal"),
        ({"field": TEMPERATURE, "value": True}, "not a number"),
        ({"field": TEMPERATURE, "value": 95.5}, "takes whole numbers"),
        ({"field": TEMPERATURE, "value": float("nan")}, "finite"),
        ({"field": "DCGM_FI_DEV_POWER_USAGE", "value": 700.1234}, "at most 3 decimals"),
        ({"field": "DCGM_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER_FLOAT", "value": 1e-5}, r"takes 0\.001 to 1"),
        ({"field": XID}, r"needs a value, .*1 to 999 \(Xid\)"),
        ({"field": XID, "value": 0}, "takes 1 to 999"),
        ({"field": REMAP, "value": 1, "gpu": 64}, "less than or equal to 63"),
    ],
)
def test_what_cannot_be_injected_is_refused_before_any_host_sees_it(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        parse_parameters({"type": "dcgm_field"} | data)


def test_the_warnings_name_who_acts_on_the_value() -> None:
    assert FIELD.warnings(of("DCGM_FI_DEV_THERMAL_VIOLATION")) == (
        "DCGM_FI_DEV_THERMAL_VIOLATION: NVSentinel cordons the node, with no remediation of its own",
    )
    assert FIELD.warnings(of("DCGM_FI_DEV_FB_FREE", 1)) == ()


def test_a_pause_beside_the_fault_is_refused() -> None:
    parts = [{"type": "dcgm_pause"}, {"type": "dcgm_field", "field": TEMPERATURE, "value": 95}]
    with pytest.raises(ValidationError, match="dcgm_field and dcgm_pause both take DCGM's sampling"):
        parse_parameters({"type": "compound", "parts": parts})
    beside = parse_parameters({"type": "compound", "parts": [parts[1], {**parts[1], "field": REMAP, "value": 1}]})
    assert len(beside.made_of()) == 2, "two fields only need it to go on"


def test_a_paused_engine_is_refused_because_it_knows_no_gpu(host: ModelHost) -> None:
    host.machine.cache.pause(0)
    with pytest.raises(HostError, match=r"collection is paused.*dcgmi test --resume"):
        FIELD.inject(of(TEMPERATURE), 0, host)
    assert not host.machine.cache.injected((0, 0))


def test_a_gpu_that_is_lost_under_the_fault_cannot_be_read_until_the_node_has_restarted(host: ModelHost) -> None:
    parameters = of(XID, 48)
    state = FIELD.inject(parameters, 2, host).undo_state
    host.fleet.lost[0, 2] = True
    for act in (FIELD.undo, FIELD.verify_undone):
        with pytest.raises(HostError, match=r"GPU 2 is lost to DCGM, .*: reboot the node") as refused:
            act(parameters, 2, host, state)
        assert not isinstance(refused.value, HostBusyError), "to try again does not help"
    host.fleet.lost[0, 2] = False
    host.machine.cache.restart(0)
    assert FIELD.verify_undone(parameters, 2, host, state)


def test_a_gpu_that_only_dcgm_has_lost_is_refused(host: ModelHost) -> None:
    lost = result(["dcgmi"], 238, stderr="Error: Got error -18 GPU is lost while adding GPU 0 to our entity group.\n")
    with pytest.raises(HostError, match="GPU 0 is lost to DCGM"):
        FIELD.prior_state(of(REMAP), 0, answering({"dmon": lost}))
