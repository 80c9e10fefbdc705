"""The SXid fault on a host in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gameday.errors import DocumentError, HostError
from gameday.faults.registry import parameter_models, parse_parameters
from gameday.faults.sxid import SxidFault, SxidParameters, SxidSeverity
from gameday.plan.load import load_plan
from gameday.xid.catalogue import sxids
from gameday.xid.decide import Response, decide
from gameday.xid.lines import Kind, Severity, recognise
from tests.host.fake import FakeHost

FAULT = SxidFault()


def of(sxid: int, **more: Any) -> SxidParameters:
    return SxidParameters(**{"sxid": sxid, "pci": "0000:c1:00"} | more)


@pytest.mark.parametrize("code", sorted(sxids()))
def test_every_code_of_the_catalogue_is_a_line_that_is_read_with_the_drivers_own_severity(code: int) -> None:
    host = FakeHost()
    evidence = FAULT.inject(of(code), 0, host)
    event = recognise(host.log[0])
    assert event
    known = sxids()[code]
    link = 0 if known.has_link else None
    assert (event.kind, event.code, event.pci, event.switch, event.link) == (Kind.SXID, code, "0000:c1:00", 0, link)
    assert event.severity == {"Fatal": Severity.FATAL, "Non-fatal": Severity.NON_FATAL, "": None}[known.word]
    assert decide(event).response is (Response.QUARANTINE if known.word == "Fatal" else Response.EVENT)
    assert evidence.written_at


def test_the_line_is_the_drivers() -> None:
    assert (
        of(20034, switch=3, link=7).line
        == "kernel: nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 07 LTSSM Fault Up"
    )
    assert (
        of(22003, form="bare", link=None, pci="0000:03:00", severity=SxidSeverity.NON_FATAL).line
        == "nvidia-nvswitch0: SXid (PCI:0000:03:00.0): 22003, Non-fatal, MINION HALT"
    )
    assert of(12028).line.endswith("12028, Non-fatal, Link 00 egress non-posted PRIV error")
    assert of(10004).line.endswith("10004, NVSWITCH Temperature 95C | TSENSE WARN Threshold 90C")


def test_repeats_are_counted_and_a_swallowed_write_is_an_error() -> None:
    host = FakeHost()
    assert FAULT.inject(of(20034, repeat=10), 0, host).lines[2].startswith("after: 10 ")
    host.write_kernel_log = lambda record: None  # type: ignore[method-assign]
    with pytest.raises(HostError, match=r"wrote 1 kernel-log record\(s\) and found 0 new"):
        FAULT.inject(of(20034), 0, host)


def test_undo_says_that_a_record_stays() -> None:
    host = FakeHost()
    assert "nothing to undo" in FAULT.undo(of(20034), 0, host, {}).lines[0]
    assert FAULT.verify_undone(of(20034), 0, host, {})
    assert host.log == []


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"sxid": 79}, "greater than or equal to 10000"),
        ({"sxid": "20034; reboot"}, "valid integer"),
        ({"sxid": 28002}, "not in the catalogue: say its `severity`"),
        ({"sxid": 20034, "pci": "0000:C1:00.0); reboot"}, "pattern"),
        ({"sxid": 20034, "form": "mig"}, "'kernel' or 'bare'"),
        ({"sxid": 20034, "repeat": 11}, "less than or equal to 10"),
        ({"sxid": 20034, "link": 144}, "less than or equal to 143"),
    ],
)
def test_what_is_no_sxid_line_is_refused(data: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_parameters({"type": "sxid", "pci": "0000:c1:00"} | data)


def test_a_plan_that_names_no_switch_is_refused_with_the_command_that_lists_them(tmp_path: Path) -> None:
    plan = tmp_path / "ours.yaml"
    plan.write_text(
        "apiVersion: gameday/v1\nname: ours\ntitle: A plan\nhypothesis: Somebody notices.\n"
        "fault: {type: sxid, sxid: 20034}\nexpect: {stays_schedulable_for: 5s}\n"
    )
    with pytest.raises(DocumentError) as refused:
        load_plan(plan, parameter_models())
    (problem,) = refused.value.problems
    assert (problem.message, problem.line) == ("`pci` is missing", 5)
    assert "add `pci:`" in (problem.suggestion or "") and "lspci -D -d 10de::0680" in (problem.suggestion or "")


def test_a_code_that_nobody_lists_goes_in_with_its_severity() -> None:
    assert of(28002, severity=SxidSeverity.NON_FATAL).line.endswith("28002, Non-fatal, Link 00 unknown")
