"""Recogniser, writers and decisions agree with every known line of the driver (known_lines.py)."""

from __future__ import annotations

import re
from functools import cache

import pytest

from gameday.faults.sxid import SxidParameters, SxidSeverity
from gameday.xid.catalogue import nvlink5_codes, sxids, xids
from gameday.xid.decide import decide
from gameday.xid.lines import Form, KernelEvent, Kind, LogReader, format_xid, recognise
from gameday_health.policy import Policy
from gameday_health.policy_files import kernel_signal, load_policy
from tests.xid.known_lines import KnownLine, forms_of, known_lines

PCI = "0000:4e:00"
NVLINK5 = range(144, 151)
# Bits of intrInfo that name the unit, before driver R575 (ten) and since (seven): NVIDIA's Xid-Catalog.xlsx, sheet Xid
# 144-150 Decode, as shipped in NVSentinel. Where the name differs, both are given.
SUBCODES = {
    (144, "SAW_MVB"): (0x021, 0x01), (145, "RLW_CTRL"): (0x062, 0x03), (145, "RLW_REMAP"): (0x082, 0x04),
    (145, "RLW_RSPCOL"): (0x0A2, 0x05), (145, "RLW_RXPIPE"): (0x0C2, 0x06), (145, "RLW_SRC_TRACK"): (0x0E2, 0x07),
    (145, "RLW_TAGSTATE"): (0x102, 0x08), (146, "TLW_CTRL"): (0x123, 0x09), (146, "TLW_RX"): (0x143, None),
    (146, "TLW_TX"): (0x163, None), (147, "TREX"): (0x184, 0x0E), (148, "NVLPW_CTRL"): (0x005, None),
    (149, "NETIR"): (0x006, None), (149, "NETIR_LINK_EVT"): (0x1C6, None), (149, "NETIR_BER_EVENT"): (0x226, 0x13),
    (149, "NETIR_MFDE_EVENT"): (0x246, 0x14), (150, "MSE_WATCHDOG"): (0x000, 0x00),
}  # fmt: skip
_TAIL = re.compile(r"(?P<word>Fatal|Nonfatal) +XC(?P<xc>\d) i(?P<injected>\d) Link (?P<link>-?\d+) \((?P<info>0x\w{8})")


def of_nvlink5() -> list[KnownLine]:
    return [known for known in known_lines() if known.form.startswith("nvlink5") and known.origin != "constructed"]


@cache
def shipped_policy() -> Policy:
    return load_policy().policy


def facts(event: KernelEvent | None) -> dict[str, str]:
    names = ("kind", "code", "pci", "unit", "severity", "link", "pid", "process")
    found = {name: getattr(event, name, None) for name in names}
    return {name: "" if value is None else str(value) for name, value in found.items()}


def last_event(reader: LogReader, lines: list[str]) -> KernelEvent | None:
    return [reader.recognise(line) for line in lines][-1]


def lost_gpu(reader: LogReader, *lines: str) -> str | None:
    event = last_event(reader, list(lines))
    assert event is not None and event.kind is Kind.GPU_LOST
    return event.pci


def test_the_table_is_complete() -> None:
    assert [known.line for known in known_lines() if not known.is_of_its_form] == []
    assert all(known.source and re.fullmatch(r"20\d\d-\d\d", known.seen) for known in known_lines())
    assert {known.origin for known in known_lines()} == {"captured", "documented", "constructed"}
    assert len(known_lines()) == len({known.line for known in known_lines()}) > 100
    assert {int(known.code) for known in known_lines() if known.form.startswith("nvlink5")} == set(NVLINK5)


@pytest.mark.parametrize("known", known_lines(), ids=lambda known: known.id)
def test_a_known_line_is_read_and_decided_as_the_table_says(known: KnownLine) -> None:
    wanted = {name: getattr(known, name) for name in facts(None)}
    lines = known.line.splitlines()
    policy = shipped_policy()
    # The readers of one log get a record of several lines whole, as /dev/kmsg escapes it, or line by line.
    for event in (recognise(known.line), recognise("\\x0a".join(lines)), last_event(LogReader(), lines)):
        assert facts(event) == wanted
        if event:
            decision, by_policy = decide(event), policy.decide(kernel_signal(event))
            assert (decision.response, decision.remedy) == (known.response, known.remedy)
            assert (by_policy.response, by_policy.remedy, by_policy.reason) == (
                decision.response,
                decision.remedy,
                decision.reason,
            )
        else:
            assert known.response == known.remedy == ""


def test_the_stamp_of_a_sentence_is_that_of_its_first_line() -> None:
    lines = next(known.line for known in known_lines() if known.form == "lost-in-three-lines").splitlines()
    event = last_event(LogReader(), lines)
    assert event is not None and event.uptime_s == 1843.308145
    assert event.line.startswith(lines[0]) and event.line.endswith(lines[2].strip())


def test_a_lost_gpu_is_not_the_one_of_a_sentence_long_ago_or_of_another_log() -> None:
    first, *_, last = next(known.line for known in known_lines() if known.form == "lost-in-three-lines").splitlines()
    alone = last.strip()
    reader = LogReader()
    assert lost_gpu(reader, first, "usb 1-1: new device", alone) is None
    assert lost_gpu(reader, first, first.replace("b3", "b4"), last) == "0000:b4:00"
    assert lost_gpu(reader, alone) is None
    assert lost_gpu(reader, first, "NVRM: GPU 0000:b5:00.0: GPU has fallen off the bus.") == "0000:b5:00"
    # What dmesg indents is the rest of the record before, whatever that was.
    assert last_event(reader, [first, "usb 1-1: new device", last]) is None
    assert last_event(reader, [last]) is recognise(last) is None


def test_a_sentence_that_ends_otherwise_is_not_ended_by_a_later_line() -> None:
    first, second = next(
        known.line for known in known_lines() if known.form == "neighbour" and "NVIDIA GPU 0000" in known.line
    ).splitlines()
    indented = f"{'':15}NVRM: fallen off the bus and is not responding to commands."
    assert last_event(LogReader(), [first, second, indented]) is None


@pytest.mark.parametrize("form", Form)
def test_every_xid_line_that_we_write_is_of_a_known_form(form: Form) -> None:
    for code in (*xids(), 999):
        line = format_xid(code, PCI, form)
        forms = forms_of(line)
        assert forms, line
        if form in (Form.KERNEL, Form.BARE):
            assert (code in NVLINK5) == any(name.startswith("nvlink5") for name in forms), line
            assert (code == 154) == ("recovery" in forms), line


def test_every_sxid_line_that_we_write_is_of_a_known_form() -> None:
    for code in sxids():
        for severity in (None, *SxidSeverity):
            for link in (None, 7):
                line = SxidParameters(sxid=code, severity=severity, link=link, pci="0000:c1:00").line
                has_link = link is not None and sxids()[code].has_link
                assert ("sxid" in forms_of(line)) == (has_link and "atal" in line), line
                assert forms_of(line) & {"sxid", "sxid-no-link", "sxid-no-severity"}, line


@pytest.mark.parametrize("line", [known.line for known in of_nvlink5()] + [format_xid(code, PCI) for code in NVLINK5])
def test_the_first_word_of_an_nvlink5_line_says_what_its_text_says(line: str) -> None:
    event, tail = recognise(line), _TAIL.search(line)
    assert event and event.code and event.unit and tail
    old, new = SUBCODES[event.code, event.unit]
    info = int(tail["info"], 16)
    flags = [tail["word"] == "Fatal", tail["xc"] == "1", tail["injected"] == "1"]
    link = int(tail["link"]) & 31  # -1, all links, is all ones
    # The layout of the bits above the sub-code is our reading of the captured lines, which all obey it.
    before_r575 = (info & 0x3FF, [bool(info >> bit & 1) for bit in (10, 11, 12)], info >> 13 & 31)
    since_r575 = (info & 0x7F, [bool(info >> bit & 1) for bit in (7, 8, 9)], info >> 10 & 31)
    assert before_r575 == (old, flags, link) or since_r575 == (new, flags, link)


@pytest.mark.parametrize("code", NVLINK5)
def test_an_nvlink5_line_that_we_write_is_a_row_of_nvidias_table(code: int) -> None:
    event = recognise(format_xid(code, PCI))
    assert event and event.unit and event.severity
    rows = [row for row in nvlink5_codes() if row.xid == code and event.unit in row.unit.split("/")]
    stated = [row.severity.lower() for row in rows if row.error_status in (None, event.error_status)]
    assert any(severity.removeprefix("link ") == event.severity for severity in stated)
