"""Read every form of the NVIDIA driver's kernel-log lines, and write one.

Kernel logs are hostile input: other messages print names that anybody can choose. So a line counts as the driver's only
by the first words of its message, after a prefix that the log's reader wrote (`gameday.xid.record`). Later fields are
read by their position, and a process's name, which may hold anything, ends where a name must. Patterns are anchored
with bounded repeats, so that the time to read a line grows linearly with its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from gameday.xid.catalogue import xids
from gameday.xid.messages import MESSAGES, NAME_BYTE, PCI, begins_with_a_name
from gameday.xid.record import MAX_LINE_CHARACTERS, Record, Writer, read_record

MAX_RECORD_BYTES = 976
"""The longest record that /dev/kmsg takes, including the `<N>` prefix (docs/sources.md, printk and /dev/kmsg)."""
_MAX_TEXT_CHARACTERS = 400

BEAT = "gameday: beat"
"""The line that deploy/dmesg-shipper prints after its own stamp, at its start and each minute."""
_BEAT = re.compile(rf"\[ {{0,12}}(?P<seconds>\d{{1,10}}\.\d{{1,9}})\] {BEAT}")
_XID = re.compile(
    rf"NVRM: Xid ?\((?:PCI:)?{PCI}"
    r"(?: GPU-I:(?P<gpu_instance>\d{1,3})(?: GPU-CI:(?P<compute_instance>\d{1,3}))?)?\)"
    r": ?(?P<code>\d{1,5})(?=[, ]|$)",
    re.IGNORECASE,
)
# A process's name may hold commas: the last of these bytes ends it. A newline in it ends the line.
_PROCESS = re.compile(
    r"[, ]{0,3}pid='?(?P<pid>\d{1,10}|<unknown>)(?!\d)'?"
    rf"(?:, name=(?P<name>{NAME_BYTE}{{0,15}})(?:$|(?=, )))?"
)
# Newer drivers pad the fields to columns (docs/sources.md, Lines of the driver).
_BLANKS = rf" {{1,{_MAX_TEXT_CHARACTERS}}}"
_NVLINK5 = re.compile(
    rf"(?P<unit>[A-Z0-9_/]{{2,40}}(?:{_BLANKS}Degraded)?){_BLANKS}(?P<severity>Non-?fatal|Fatal)\b[^(]{{0,{_MAX_TEXT_CHARACTERS}}}"
    rf"(?:\((?:0x[0-9a-f]{{1,16}})[ ,]{{1,{_MAX_TEXT_CHARACTERS}}}(?P<status>0x[0-9a-f]{{1,16}}))?",
    re.IGNORECASE,
)
_NVLINK5_CODES = range(144, 151)
_NVLINK5_LINK = re.compile(rf"\bLink{_BLANKS}(?P<link>\d{{1,3}})\b", re.IGNORECASE)
_RECOVERY = re.compile(
    r"GPU recovery action changed from .{0,80}? to 0x(?P<number>[0-9a-f]{1,8}) ?\((?P<action>[^)]{1,80})\)",
    re.IGNORECASE,
)
_SWITCH = r"nvidia-nvswitch(?P<switch>\d{1,4}): SXid"
_SXID = re.compile(
    rf"{_SWITCH} ?\((?:PCI:)?{PCI}\): ?(?P<code>\d{{1,6}})(?=[, ]|$)"
    r"(?:, (?P<severity>Fatal|Non-?fatal|Correctable)\b)?(?:,? Link (?P<link>\d{1,3}))?",
    re.IGNORECASE,
)
_SXID_DETAIL = re.compile(r"[, ]{0,3}(?:Severity \d|Data ?\{)", re.IGNORECASE)
# The driver splits a sentence into two or three lines of one record; the first has the GPU.
_GAP = rf"(?:\\x0a| ){{1,{_MAX_TEXT_CHARACTERS}}}"
_SENTENCE = rf"NVRM: The NVIDIA GPU {PCI}"
_WORD = r"(?:NVRM:|\(PCI ID: [0-9a-f]{4}:[0-9a-f]{4}\)|installed|in|this|system|has)"
_SENTENCE_BEGIN = re.compile(_SENTENCE, re.IGNORECASE)
_SENTENCE_REST = re.compile(r"NVRM: (?:\(PCI ID: |installed in this |system has |fallen off )", re.IGNORECASE)
_LOST = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        rf"NVRM: GPU (?:at )?(?:PCI:)?{PCI}:? (?:GPU )?(?:has fallen off the bus|is lost)\b",
        rf"{_SENTENCE}(?:{_GAP}{_WORD}){{0,12}}{_GAP}fallen off the bus\b",
        r"NVRM: (?:system has )?fallen off the bus\b",
        r"NVRM: GPU is lost\b",
        r"NVRM: (?:GPU\d{1,3} )?(?:\w{1,80}: )?Check failed: GPU lost from the bus \[NV_ERR_GPU_IS_LOST\]",
    )
)
_PEERMEM = re.compile(r"nvidia-peermem \w{1,64}:\d{1,6} ERROR detected invalid context")
_RESET = re.compile(rf"gameday-agent: GPU reset executed: PCI:{PCI}, success: (?P<success>true|false)")
# The whole address, because a kernel message may begin with the 15 bytes of a process's name.
_SOME_XID = re.compile(rf"NVRM: Xid ?\((?:PCI:)?{PCI}", re.IGNORECASE)
_SOME_SXID = re.compile(_SWITCH, re.IGNORECASE)
# A packet that netfilter logs: the message begins with its prefix, which may be any 127 characters.
_PACKET = re.compile(r"(?:OUT|MAC|MACSRC|SRC)=")
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")


class Kind(StrEnum):
    """The kinds of kernel-log lines that are recognised."""

    XID = "xid"
    SXID = "sxid"
    GPU_LOST = "gpu-lost"
    """A GPU that has fallen off the bus, in a line without an Xid."""
    PEERMEM = "peermem"
    """An invalid context that nvidia-peermem found."""
    DRIVER = "driver"
    """A message of the driver without a code that matters to the node, by its name (gameday/xid/messages.py)."""
    GPU_RESET = "gpu-reset"
    """The agent's note that it reset a GPU; never a fault."""
    OTHER = "other"
    """Any other line, which only a policy's pattern can match."""


class Severity(StrEnum):
    """The severity in a line."""

    FATAL = "fatal"
    NON_FATAL = "non-fatal"


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """The facts in one recognised line; a field is None if the line does not have it."""

    kind: Kind
    line: str
    """The cleaned line, at most MAX_LINE_CHARACTERS long."""
    name: str = ""
    """The name of a driver's message without a code, e.g. uvm-fatal."""
    code: int | None = None
    """The Xid or SXid; None also if the line names one in an undocumented form."""
    pci: str | None = None
    """Address of the GPU or the NVSwitch, lower case without function: 0000:4e:00."""
    text: str = ""
    """The driver's text after code and process."""
    uptime_s: float | None = None
    """The line's own dmesg stamp, seconds since the node's boot."""
    pid: int | None = None
    process: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    severity: Severity | None = None
    link: int | None = None
    switch: int | None = None
    unit: str | None = None
    error_status: int | None = None
    recovery: str | None = None
    """The recovery action that an Xid 154 changed to, as text, which differs between drivers."""
    recovery_number: int | None = None
    detail_only: bool = False
    """True for an SXid's follow-up line (`Severity …`, `Data {…}`)."""
    success: bool | None = None
    """True if a GPU reset succeeded; None for every other line."""
    writer: Writer = Writer.ANYBODY
    """The programs that may have written the line."""
    wall: datetime | None = None
    """The line's own time by the node's clock; None if it has none, or one without a zone."""
    is_dated: bool = False
    """True for a line with its own stamp or time, which identifies it if it is shipped again."""


def recognise(line: str | bytes) -> KernelEvent | None:
    """Read a kernel-log line about a GPU or NVSwitch; return None for every other line. Never raises."""
    return _event(read_record(line))


def read_other(line: str | bytes) -> KernelEvent | None:
    """Read a line that `recognise` does not know; None if it may begin with a text that anybody can choose."""
    record = read_record(line)
    is_anybodys = begins_with_a_name(record.message) or _PACKET.search(record.message)
    if record.is_continued or not record.message or is_anybodys:
        return None
    return _dated(KernelEvent(Kind.OTHER, record.line, text=record.message), record)


class LogReader:
    """Recognise the lines of one log in their order; a record with newlines appears as several lines.

    The driver splits a sentence about a lost GPU: the first line has the GPU and the stamp, the second or the third
    says that it has fallen off the bus. A newline in a process's name cuts off an Xid's text.
    """

    def __init__(self) -> None:
        self._begun = ""

    def recognise(self, line: str | bytes) -> KernelEvent | None:
        """Recognise the log's next line as `recognise` does; the last line of a record is read with the first one."""
        record = read_record(line)
        if self._begun and (record.is_continued or _SENTENCE_REST.match(record.message)):
            self._begun = f"{self._begun} {record.message}"[:MAX_LINE_CHARACTERS]
            event = recognise(self._begun)
            if event is None or _is_cut(event):
                return None
            self._begun = ""
            return event
        event = _event(record)
        is_begun = _is_cut(event) or (event is None and _SENTENCE_BEGIN.match(record.message))
        self._begun = record.line if is_begun and not record.is_continued else ""
        return event


def _is_cut(event: KernelEvent | None) -> bool:
    """Return True if the line lacks the unit and severity that decide its Xid."""
    return event is not None and event.code in _NVLINK5_CODES and not event.text


def beat_uptime_s(line: str) -> float | None:
    """Return the stamp of the shipper's beat, seconds since boot; None for every other line."""
    record = read_record(line)
    found = None if record.is_continued else _BEAT.fullmatch(record.line)
    return float(found["seconds"]) if found else None


def _event(record: Record) -> KernelEvent | None:
    if record.is_continued:
        return None
    event = _sxid(record) or _xid(record) or _reset(record) or _gpu_lost(record) or _peermem(record)
    event = event or _message(record) or _unreadable(record)
    return None if event is None or _PACKET.search(event.text) else _dated(event, record)


def _dated(event: KernelEvent, record: Record) -> KernelEvent:
    return replace(event, uptime_s=record.uptime_s, writer=record.writer, wall=record.wall, is_dated=record.is_dated)


def _sxid(record: Record) -> KernelEvent | None:
    found = _SXID.match(record.message)
    if not found:
        return None
    rest = record.message[found.end() :]
    return KernelEvent(
        Kind.SXID,
        record.line,
        code=int(found["code"]),
        pci=_pci(found),
        text=rest.lstrip(", ")[:_MAX_TEXT_CHARACTERS],
        severity=_severity(found["severity"]),
        link=_int(found["link"]),
        switch=_int(found["switch"]),
        detail_only=bool(_SXID_DETAIL.match(rest)),
    )


def _xid(record: Record) -> KernelEvent | None:
    found = _XID.match(record.message)
    if not found:
        return None
    code = int(found["code"])
    rest = record.message[found.end() :]
    process = _PROCESS.match(rest)
    name = process["name"] if process else None
    text = rest[process.end() if process else 0 :].lstrip(", ")[:_MAX_TEXT_CHARACTERS]
    nvlink5 = _NVLINK5.match(text) if code in _NVLINK5_CODES else None
    link = _NVLINK5_LINK.search(text) if nvlink5 else None
    recovery = _RECOVERY.match(text) if code == 154 else None
    return KernelEvent(
        Kind.XID,
        record.line,
        code=code,
        pci=_pci(found),
        text=text,
        pid=int(process["pid"]) if process and process["pid"].isdecimal() else None,
        process=name if name != "<unknown>" else None,
        gpu_instance=_int(found["gpu_instance"]),
        compute_instance=_int(found["compute_instance"]),
        severity=_severity(nvlink5["severity"]) if nvlink5 else None,
        link=_int(link["link"]) if link else None,
        unit=" ".join(nvlink5["unit"].split()) if nvlink5 else None,
        error_status=int(nvlink5["status"], 16) if nvlink5 and nvlink5["status"] else None,
        recovery=recovery["action"] if recovery else None,
        recovery_number=int(recovery["number"], 16) if recovery else None,
    )


def _reset(record: Record) -> KernelEvent | None:
    found = _RESET.fullmatch(record.message)
    if not found or record.writer is Writer.KERNEL:
        return None  # the agent is not part of the kernel
    return KernelEvent(
        Kind.GPU_RESET,
        record.line,
        pci=_pci(found),
        success=found["success"] == "true",
    )


def _gpu_lost(record: Record) -> KernelEvent | None:
    found = next(filter(None, (pattern.match(record.message) for pattern in _LOST)), None)
    if not found:
        return None
    # The driver reports the same event as an Xid 79 elsewhere, so the event has that code.
    return KernelEvent(
        Kind.GPU_LOST,
        record.line,
        code=79,
        pci=_pci(found) if "bus" in found.groupdict() else None,
        text=record.message[:_MAX_TEXT_CHARACTERS],
    )


def _message(record: Record) -> KernelEvent | None:
    for message in MESSAGES:
        found = next(filter(None, (form.match(record.message) for form in message.forms)), None)
        if found:
            pci = _pci(found) if found.groupdict().get("bus") else None
            text = record.message[:_MAX_TEXT_CHARACTERS]
            return KernelEvent(Kind.DRIVER, record.line, name=message.name, pci=pci, text=text)
    return None


def _peermem(record: Record) -> KernelEvent | None:
    if not _PEERMEM.match(record.message):
        return None
    return _without_code(Kind.PEERMEM, record)


def _unreadable(record: Record) -> KernelEvent | None:
    for kind, pattern in ((Kind.XID, _SOME_XID), (Kind.SXID, _SOME_SXID)):
        if pattern.match(record.message):
            return _without_code(kind, record)
    return None


def _without_code(kind: Kind, record: Record) -> KernelEvent:
    return KernelEvent(kind, record.line, text=record.message[:_MAX_TEXT_CHARACTERS])


def _pci(found: re.Match[str]) -> str:
    return f"{int(found['domain'] or '0', 16):04x}:{found['bus']}:{found['device']}".lower()


def _int(digits: str | None) -> int | None:
    return None if digits is None else int(digits)


def _severity(word: str | None) -> Severity | None:
    if word is None:
        return None
    return Severity.FATAL if word.lower() == "fatal" else Severity.NON_FATAL


class Form(StrEnum):
    """The form of a line. Not every reader sees every form (docs/sources.md, Who reads which line)."""

    KERNEL = "kernel"
    """`kernel: NVRM: …`: every log-based reader sees it, and DCGM does not act on it."""
    BARE = "bare"
    """The driver's own form. DCGM acts on a bare 79, 119 or 120 until its host engine restarts."""
    MIG = "mig"
    """Bare, attributed to GPU instance 1, compute instance 0."""
    OLD = "old"
    """The form of older drivers, without `PCI:` and process."""


# Texts as in the tests of the driver and its readers (docs/sources.md, Lines of the driver); the numbers are examples.
# Of the NVLink5 lines 145 and 149 were captured; the first word of the others follows their pattern.
_TEXTS = {
    13: "Graphics SM Warp Exception on (GPC 1, TPC 3, SM 0): Out Of Range Address",
    14: "Channel 00000001",
    31: (
        "Ch 00000008, intr 10000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f2a_00000000. "
        "Fault is of type FAULT_PDE ACCESS_TYPE_READ"
    ),
    32: "Channel ID 0000000d intr0 00040000",
    43: "Ch 00000008",
    45: "Ch 00000008",
    48: "An uncorrectable double bit error (DBE) has been detected on GPU in the framebuffer",
    62: "223b6a66 00002100 00000000 20662342 20662ba6 20664272 2065f7ca 2063f48c",
    63: "Row Remapper: New row (0x0000000000a3c000) marked for remapping, reset gpu to activate.",
    64: "Row Remapper Error: (0x00000002eebc4100) - All reserved rows for bank are remapped",
    69: "Class Error: ChId 0008, Class 0000cbc0, Offset 00000184, Data ffffffff, ErrorCode 00000004",
    74: "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    94: "Contained: CE User Channel (0x9). RST: No, D-RST: No",
    95: "Uncontained: FBHUB. RST: Yes, D-RST: No",
    109: "Ch 00000003, errorString CTX SWITCH TIMEOUT, Info 0x24c005",
    119: (
        "Timeout after 6s of waiting for RPC response from GPU1 GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x20802a02 0x8)."
    ),
    120: "GSP kernel exception: store access page fault (cause:0xf) @ pc:0xffffffff93003d42, partition:4#0",
    144: "SAW_MVB Fatal XC0 i0 Link 05 (0x000ca421 0x00000002 0x00000000 0x00000000 0x00000000 0x00000000)",
    145: "RLW_SRC_TRACK Nonfatal XC1 i0 Link 12 (0x040988e2 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)",
    146: "TLW_RX Fatal XC0 i0 Link 05 (0x000ca543 0x00000004 0x00000000 0x00000000 0x00000000 0x00000000)",
    147: "TREX Nonfatal XC0 i0 Link 02 (0x00084184 0x80000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    148: "NVLPW_CTRL Nonfatal XC0 i0 Link 02 (0x00084005 0x80000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    149: "NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    150: "MSE_WATCHDOG Fatal XC0 i0 Link -1 (0x000fe400 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
    154: "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
}


def format_xid(code: int, pci: str, form: Form = Form.KERNEL, text: str | None = None) -> str:
    """Return the line that a driver would log, without the `<N>` prefix.

    Args:
        code: The Xid, 1 to 999.
        pci: Address of the GPU, e.g. 0000:4e:00.
        form: The form of the line.
        text: The text after code and process. None: the driver's own text if it is known, else the catalogue's name
            for the code.

    Raises:
        ValueError: The kernel log cannot carry such a line; the message says why.
    """
    if not _PCI_ID.fullmatch(pci):
        raise ValueError(f"PCI id {pci!r}: write domain:bus:device in lower case like 0000:4e:00")
    if not 0 < code < 1000:
        raise ValueError(f"Xid {code}: codes lie between 1 and 999")
    if text is None:
        xid = xids().get(code)
        text = _TEXTS.get(code) or (xid.name if xid else "unknown")
    if not text.isprintable():
        raise ValueError("an Xid's text is one line of printable characters")
    line = _formatted(code, pci, form, text)
    if len(line.encode()) > MAX_RECORD_BYTES - len("<3>"):
        raise ValueError(
            f"the line is {len(line.encode())} bytes; the kernel log takes {MAX_RECORD_BYTES} with its prefix"
        )
    return line


def _formatted(code: int, pci: str, form: Form, text: str) -> str:
    if form is Form.OLD:
        return f"NVRM: Xid ({pci}): {code}, {text}"
    where = f"PCI:{pci} GPU-I:01 GPU-CI:00" if form is Form.MIG else f"PCI:{pci}"
    # The driver names a process if a channel or a call of a program caused the error. A fabric error and a changed
    # recovery action name none.
    process = "" if 144 <= code <= 150 or code == 154 else "pid='<unknown>', name=<unknown>, "
    prefix = "kernel: " if form is Form.KERNEL else ""
    return f"{prefix}NVRM: Xid ({where}): {code}, {process}{text}"
