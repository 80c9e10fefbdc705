"""The catalogue is complete, and is read as documented."""

import pytest

from gameday.xid.catalogue import Action, Remedy, XidRule, nvlink5_actions, nvlink5_codes, sxids, xids
from gameday.xid.decide import Decision, Response, decide
from gameday.xid.lines import format_xid, recognise


def decided(line: str) -> Decision:
    event = recognise(line)
    assert event is not None, line
    return decide(event)


def of_xid(code: int) -> Decision:
    return decided(format_xid(code, "0000:4e:00"))


def test_the_catalogue_is_complete() -> None:
    assert sorted(xids()) == list(range(1, 174))
    assert len(sxids()) == 93
    assert sum(sxid.allow_listed for sxid in sxids().values()) == 20
    assert {code.xid for code in nvlink5_codes()} == set(range(144, 151))
    assert xids()[79].mnemonic == "ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS"
    assert xids()[79].architectures == ("A100", "H100", "B100", "GB200")


def test_every_rule_follows_from_nvidias_action() -> None:
    hardware = {Action.RESET_GPU, Action.RESTART_BM, Action.RESTART_VM, Action.WORKFLOW_XID_48, Action.CHECK_UVM,
                Action.CHECK_MECHANICALS, Action.CONTACT_SUPPORT, Action.WORKFLOW_NVLINK_ERR}  # fmt: skip
    for xid in xids().values():
        if xid.rule is XidRule.QUARANTINE:
            assert xid.is_used and (xid.immediate in hardware or xid.code == 168), xid
            assert xid.remedy is not Remedy.NONE, xid
        elif xid.rule in (XidRule.WORKLOAD, XidRule.EVENT):
            assert not xid.is_used or xid.immediate not in hardware, xid
            assert xid.remedy is Remedy.NONE, xid


@pytest.mark.parametrize(
    ("code", "remedy"),
    [(46, "gpu-reset"), (48, "gpu-reset"), (54, "contact-support"), (62, "gpu-reset"), (64, "gpu-reset"),
     (74, "contact-support"), (79, "reboot"), (95, "gpu-reset"), (109, "gpu-reset"), (110, "gpu-reset"),
     (119, "gpu-reset"), (120, "gpu-reset"), (136, "gpu-reset"), (140, "gpu-reset"), (142, "contact-support"),
     (143, "gpu-reset"), (151, "reboot"), (155, "gpu-reset"), (156, "gpu-reset"), (158, "gpu-reset"),
     (149, "gpu-reset"), (154, "gpu-reset")],
)  # fmt: skip
def test_a_code_with_a_hardware_action_quarantines(code: int, remedy: str) -> None:
    assert (of_xid(code).response, of_xid(code).remedy) == (Response.QUARANTINE, remedy)


@pytest.mark.parametrize("code", [8, 13, 31, 43, 45, 68, 69, 94, 105])
def test_a_workload_error_does_not_quarantine(code: int) -> None:
    assert of_xid(code).response is Response.WORKLOAD


@pytest.mark.parametrize("code", [2, 9, 14, 56, 61, 63, 78, 92, 145, 171, 173, 175, 999])
def test_every_other_code_is_recorded_only(code: int) -> None:
    assert of_xid(code).response is Response.EVENT


def test_the_reason_names_codes_that_are_unknown_or_unused() -> None:
    assert "not in the catalogue" in of_xid(175).reason
    assert "unused" in of_xid(56).reason


@pytest.mark.parametrize(
    ("action", "response", "remedy"),
    [("0x0 (None)", "event", "none"), ("0x1 (GPU Reset Required)", "quarantine", "gpu-reset"),
     ("0x2 (Node Reboot Required)", "quarantine", "reboot"), ("0x4 (Drain and Reset)", "quarantine", "gpu-reset"),
     ("0x3 (Drain P2P)", "quarantine", "contact-support"), ("0x1 (PF FLR)", "quarantine", "gpu-reset"),
     ("0x2 (Bus Reset)", "quarantine", "reboot"), ("0x0 (No Action)", "event", "none"),
     ("0x9 (Node Reboot Required)", "quarantine", "reboot"), ("0x9 (Call)", "quarantine", "contact-support"),
     ("0x5 (Recover IMEX Domain)", "event", "none"), ("0x6 (Bus Reset)", "quarantine", "gpu-reset"),
     ("0x7 (System Reboot)", "quarantine", "reboot")],
)  # fmt: skip
def test_xid_154_follows_the_recovery_action_that_it_states(action: str, response: str, remedy: str) -> None:
    line = format_xid(154, "0000:4e:00", text=f"GPU recovery action changed from 0x0 (None) to {action}")
    assert (decided(line).response, decided(line).remedy) == (response, remedy)


@pytest.mark.parametrize(
    ("text", "response"),
    [("RLW_REMAP Fatal XC0 i0 Link 10 (0x4 0x40 0x0)", "quarantine"),
     ("RLW_REMAP Nonfatal XC1 i0 Link 10 (0x4 0x80000000 0x0)", "event"),
     ("FUTURE_UNIT Fatal XC0 i0 Link 10 (0x4 0x40 0x0)", "quarantine"),
     ("nothing readable", "event")],
)  # fmt: skip
def test_the_severity_of_an_nvlink5_line_decides(text: str, response: str) -> None:
    assert decided(format_xid(145, "0000:4e:00", text=text)).response == response


def test_nvlink5_actions_are_found_by_the_inner_unit() -> None:
    assert nvlink5_actions(146, "TLW_RX_PIPE0", 0x4) == {Action.RESET_GPU}
    assert nvlink5_actions(145, "RLW_REMAP", 0x1) == {Action.XID_154_EVAL}
    assert nvlink5_actions(149, "NETIR_LINK_EVT", 0x1234) == {Action.RESET_GPU, Action.IGNORE}
    assert nvlink5_actions(145, "RLW_REMAP", 0x12345) == frozenset()


@pytest.mark.parametrize(
    ("tail", "response", "remedy"),
    [("20034, Fatal, Link 30 LTSSM Fault Up", "quarantine", "reboot"),
     ("22003, Fatal, Link 03 Minion Halt", "quarantine", "reboot"),
     ("26006, Fatal, SOE halt", "quarantine", "contact-support"),
     ("12028, Non-fatal, Link 32 egress non-posted PRIV error (First)", "event", "none"),
     ("11012, Non-fatal, Link 01 single-bit", "event", "none"),
     ("22013, Link 01 no severity", "event", "none"),
     ("22003, Link 01 no severity", "quarantine", "reboot"),
     ("20034, Severity 1 Engine instance 30", "ignore", "none")],
)  # fmt: skip
def test_severity_then_table_decide_about_an_sxid(tail: str, response: str, remedy: str) -> None:
    decision = decided(f"nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): {tail}")
    assert (decision.response, decision.remedy) == (response, remedy)
