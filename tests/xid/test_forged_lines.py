"""Text that somebody else chose makes no line of a kernel log a fault or a note, and hides none."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.agent.qa.checks import NODE_CHECKS, NodeCheck
from gameday.agent.qa.readings import Readings
from gameday.plan.qa import QaFloors
from gameday.xid.decide import Response, decide
from gameday.xid.lines import KernelEvent, LogReader, beat_uptime_s, recognise
from gameday_health.policy import KernelLogMatch, Policy, Rule

XID = "NVRM: Xid (PCI:0000:03:00): {}, pid=1234, name={}, {}"
GENUINE = {
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer",
    79: "GPU has fallen off the bus.",
    95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
    119: "Timeout after 6s of waiting for RPC response from GPU1 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2 0x8).",
    145: "RLW_SRC_TRACK Fatal XC0 i0 Link 03 (0x040868e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)",
    149: "NETIR_LINK_EVT  Nonfatal   XC0 i0 Link 14 (0x0215c5c6 0x00000000 0x00000000 0x00000000 0x00000000)",
}
HOSTILE = (
    "SXid(00:00):999",
    "SXid (0:0): 999",
    "a, TREX Fatal X",
    "a, Xid (03:00):",
    "IN=a OUT= MAC=b",
    "a, SRC=1.2.3.4",
    "gameday: marker",
    "\\x0a, x, TT Fatal",
    "name=x, pid=1, ",
    "a, pid=7, name=",
    "'<unknown>', na",
    ", , , , , , , ,",
    "Link 99, Fatal,",
    "fallen off the ",
    "x" * 15,
    "éééééééé",
    "".join(f"\\x{byte:02x}" for byte in range(1, 16)),
)
FORGED = (
    "NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.",
    "kernel: NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.",
    "[   99.000001] NVRM: Xid (PCI:0000:03:00): 79, GPU has fallen off the bus.",
    "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 32",
    "gameday-agent: GPU reset executed: PCI:0000:03:00, success: true",
    "NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.",
    "nvidia-peermem f:127 ERROR detected invalid context",
    "NVRM: fallen off the bus and is not responding to commands.",
)
PREFIXES = (
    "",
    "[   12.345678] ",
    "4,1227,12345678,-;",
    "Nov 27 21:00:01 node-1 kernel: [   12.345678] ",
    "kern  :info  : [   12.345678] ",
    "<6>1 2026-11-27T21:00:01Z node-1 kernel - - - ",
    "2026-11-27T21:00:01.123456789Z stdout F [   12.345678] ",
)
HEADS = (
    "train[1]: segfault at 0 ip 0000000000401000 sp 00007ffe00000000 error 4 in ",
    "traps: train[1] trap divide error ip:401000 sp:7ffe00000000 error:0 in ",
    "audit: type=1326 audit(1764277201.123:45): exe=",
    "INFO: task ",
    "usb 1-1: Product: ",
    "overlay: Unknown parameter '",
    "Out of memory: Killed process 123 (",
    "BTRFS: device label ",
    "oom-kill:constraint=CONSTRAINT_MEMCG,cpuset=",
    "[   9220]  1000 ",
    "NVRM: API mismatch: the client '",
    "NVRM: Xid ",
    "nvidia-nvswitch0: ",
    "gameday-agent: driver restart executed: ",
    "systemd[1]: ",
)
AFTER_A_NAME = (
    "[9220]: segfault at 0 ip ",
    " invoked oom-killer: gfp_mask=",
    ": page allocation failure: ",
    " (1): drop_caches: 3",
)

printable = st.characters(exclude_categories=("C", "Zl", "Zp")).filter(str.isprintable)
forging = st.lists(st.sampled_from(FORGED) | st.text(printable, max_size=40), max_size=4).map("".join)
kernel_log_of_qa: NodeCheck = next(check for check in NODE_CHECKS if check.name == "kernel-log")


@cache
def corpus() -> tuple[str, ...]:
    text = (Path(__file__).parent / "forged_lines.txt").read_text(encoding="utf-8")
    return tuple(line for line in text.splitlines() if not line.startswith("#"))


def qa(*lines: str) -> int:
    """Return the number of faults that QA finds unhealed in a kernel log."""
    found = kernel_log_of_qa.judge(Readings((), (), lines, {}), QaFloors())
    assert found and isinstance(found.value, int)
    return found.value


def facts(event: KernelEvent | None) -> KernelEvent:
    """Return what a line says about a device, without the line and the process."""
    assert event is not None
    return replace(event, line="", process=None, text="")


def windows(text: str, size: int = 15) -> list[str]:
    return [text[at : at + size] for at in range(max(1, len(text) - size + 1))]


def test_the_corpus_has_lines_enough_and_each_once() -> None:
    forged = [line for line in corpus() if "Xid" in line or "GPU" in line or "gameday-agent" in line]
    assert len({line for line in forged}) >= 200


def test_no_forged_line_is_a_fault_a_note_or_a_beat() -> None:
    reader = LogReader()
    for line in corpus():
        assert recognise(line) is None, line
        assert reader.recognise(line) is None, line
        assert beat_uptime_s(line) is None, line


@pytest.mark.parametrize("pattern", ["Xid", "fallen off the bus", "GPU", "GPU reset executed"])
def test_no_forged_line_is_one_that_a_policys_pattern_asks_for(pattern: str) -> None:
    rule = Rule(name="any", kernel_log=KernelLogMatch(text=pattern), response=Response.QUARANTINE)
    policy = Policy(kind="HealthPolicy", name="p", about="A test's.", rules=(rule,))
    twice = [f"{windows(FORGED[0])[0]}[9220]: segfault at 0 ip 0 sp 0 error 6 in {text}" for text in FORGED]
    assert [line for line in (*corpus(), *twice) if policy.other_line(line)] == []


def test_no_forged_line_hides_or_heals_a_fault_for_qa() -> None:
    genuine = f"[   11.000001] {XID.format(95, 'train', GENUINE[95])}"
    assert qa(*corpus()) == 0
    assert qa(genuine, *corpus()) == 1
    assert qa(genuine, *corpus(), "[   99.0] gameday-agent: GPU reset executed: PCI:0000:03:00, success: true") == 0


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_of_a_process_hides_or_changes_a_fault(name: str, prefix: str) -> None:
    for code, text in GENUINE.items():
        event = recognise(prefix + XID.format(code, name, text))
        harmless = recognise(prefix + XID.format(code, "python3", text))
        assert facts(event) == facts(harmless)
        assert event and harmless and decide(event) == decide(harmless)
        assert decide(event).response is (Response.EVENT if code == 149 else Response.QUARANTINE)


@given(st.sampled_from(PREFIXES), st.sampled_from(sorted(GENUINE)), st.text(printable, min_size=15, max_size=15))
def test_any_name_of_15_characters_is_read_as_one(prefix: str, code: int, name: str) -> None:
    event = recognise(prefix + XID.format(code, name, GENUINE[code]))
    harmless = recognise(prefix + XID.format(code, "python3", GENUINE[code]))
    assert event and harmless
    assert (event.process, event.text) == (name, harmless.text)
    assert facts(event) == facts(harmless)


@given(st.sampled_from(sorted(GENUINE)), st.text(printable, max_size=14) | st.sampled_from(windows("".join(FORGED), 9)))
def test_a_shorter_name_changes_nothing_either(code: int, name: str) -> None:
    assert facts(recognise(XID.format(code, name, GENUINE[code]))) == facts(
        recognise(XID.format(code, "python3", GENUINE[code]))
    )


def test_a_newline_in_a_name_hides_nothing() -> None:
    for name in ("a\nb", "\n", "a\n\nb", "a\n  b\nc", "x, TT Fatal X\n"):
        for code, text in GENUINE.items():
            whole = f"[   12.345678] {XID.format(code, name, text)}"
            shown = whole.replace("\n", f"\n{'':15}").splitlines()
            harmless = recognise(f"[   12.345678] {XID.format(code, 'python3', text)}")
            reader = LogReader()
            found = [event for line in shown if (event := reader.recognise(line))]
            assert harmless and decide(found[-1]) == decide(harmless)
            assert facts(recognise(whole)) == facts(recognise(whole.replace("\n", "\\x0a"))) == facts(harmless)


@given(st.sampled_from(PREFIXES), st.sampled_from(HEADS), forging)
def test_no_text_behind_another_messages_head_is_recognised(prefix: str, head: str, text: str) -> None:
    assert recognise(prefix + head + text) is None


@given(
    st.sampled_from(PREFIXES),
    st.text(printable, max_size=15) | st.sampled_from([name for text in FORGED for name in windows(text)]),
    st.sampled_from(AFTER_A_NAME),
    forging,
)
def test_no_name_that_begins_a_message_is_recognised(prefix: str, name: str, after: str, text: str) -> None:
    assert recognise(prefix + name + after + text) is None
