"""Read every form of the NVIDIA driver's kernel-log lines, and write one.

Kernel logs are hostile input. A line is cut and cleaned first, and every
pattern either starts at a literal or is anchored with bounded repeats, so
that the time to read a line grows linearly with its length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from gameday.xid.catalogue import xids

MAX_LINE_CHARACTERS = 2048
"""A kernel record holds 1024 bytes (kernel/printk PRINTKRB_RECORD_MAX); the rest of a longer line is not the
kernel's."""
MAX_RECORD_BYTES = 976
"""The longest record that /dev/kmsg takes, `<N>` prefix included (docs/sources.md, printk and /dev/kmsg)."""
_MAX_TEXT_CHARACTERS = 400

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[@-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")
_STAMP = re.compile(r"[^\[]{0,40}\[ {0,12}(?P<seconds>\d{1,10}\.\d{1,9})\]")
BEAT = "gameday: beat"
"""The line that deploy/dmesg-shipper prints after a stamp of its own, at its start and each minute."""
_BEAT = re.compile(rf"\[ {{0,12}}(?P<seconds>\d{{1,10}}\.\d{{1,9}})\] {BEAT}$")
_MARKER = re.compile(r"(?:<\d{1,3}>)?(?:\[[^\]]{0,40}\] ?)?(?:kernel: )?gameday: marker ")
# An address without a domain is in domain 0, as in `NVRM: GPU 18:00.0: GPU has fallen off the bus.`
_PCI = r"(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2}):(?P<device>[0-9a-f]{2})(?:\.[0-9a-f])?"
_XID = re.compile(
    rf"\bXid ?\((?:PCI:)?{_PCI}(?: GPU-I:(?P<gpu_instance>\d{{1,3}})(?: GPU-CI:(?P<compute_instance>\d{{1,3}}))?)?\)"
    r": ?(?P<code>\d{1,5})\b",
    re.IGNORECASE,
)
_PROCESS = re.compile(r"[, ]{0,3}pid='?(?P<pid>\d{1,10}|<unknown>)(?!\d)'?(?:, name=(?P<name>[^,]{0,64}))?")
# Newer drivers pad the fields to columns (docs/sources.md, Lines of the driver).
_BLANKS = rf" {{1,{_MAX_TEXT_CHARACTERS}}}"
_NVLINK5 = re.compile(
    rf"(?P<unit>[A-Z0-9_/]{{2,40}}(?:{_BLANKS}Degraded)?){_BLANKS}(?P<severity>Non-?fatal|Fatal)\b[^(]{{0,{_MAX_TEXT_CHARACTERS}}}"
    rf"(?:\((?:0x[0-9a-f]{{1,16}})[ ,]{{1,{_MAX_TEXT_CHARACTERS}}}(?P<status>0x[0-9a-f]{{1,16}}))?",
    re.IGNORECASE,
)
_NVLINK5_LINK = re.compile(rf"\bLink{_BLANKS}(?P<link>\d{{1,3}})\b", re.IGNORECASE)
_RECOVERY = re.compile(
    r"recovery action changed from .{0,80}? to 0x(?P<number>[0-9a-f]{1,8}) ?\((?P<action>[^)]{1,80})\)", re.IGNORECASE
)
_SXID = re.compile(
    rf"(?:nvidia-nvswitch(?P<switch>\d{{1,4}}): )?\bSXid ?\((?:PCI:)?{_PCI}\): ?(?P<code>\d{{1,6}})\b"
    r"(?:, (?P<severity>Fatal|Non-?fatal|Correctable)\b)?(?:,? Link (?P<link>\d{1,3}))?",
    re.IGNORECASE,
)
_SXID_DETAIL = re.compile(r"[, ]{0,3}(?:Severity \d|Data ?\{)", re.IGNORECASE)
_LOST = re.compile(r"\bfallen off the bus\b", re.IGNORECASE)
_GPU_AT = re.compile(rf"\bGPU (?:at )?(?:PCI:)?{_PCI}", re.IGNORECASE)
# The first line of a sentence that the driver breaks into two or three.
_SENTENCE = re.compile(rf"NVRM: The NVIDIA GPU {_PCI}", re.IGNORECASE)
_SENTENCE_LINES = 3
_RESET = re.compile(rf"\bgameday-agent: GPU reset executed: PCI:{_PCI}, success: (?P<success>true|false)\b")
_SOME_XID = re.compile(r"NVRM: xid", re.IGNORECASE)
_SOME_SXID = re.compile(r"SXid", re.IGNORECASE)
_PCI_ID = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}")


class Kind(StrEnum):
    """The kinds of kernel-log lines that are recognised."""

    XID = "xid"
    SXID = "sxid"
    GPU_LOST = "gpu-lost"
    """A GPU that has fallen off the bus, in a line without an Xid."""
    PEERMEM = "peermem"
    """An invalid context that nvidia-peermem found."""
    GPU_RESET = "gpu-reset"
    """The agent's note that it reset a GPU; never a fault."""


class Severity(StrEnum):
    """The severity that a line states."""

    FATAL = "fatal"
    NON_FATAL = "non-fatal"


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """The facts in one recognised line; a field is None where the line does not have it."""

    kind: Kind
    line: str
    """The cleaned line, at most MAX_LINE_CHARACTERS long."""
    code: int | None = None
    """The Xid or SXid; None also where the line names one in an undocumented form."""
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


def clean(line: str | bytes) -> str:
    """Return at most MAX_LINE_CHARACTERS of a line, without terminal codes and control characters."""
    if isinstance(line, bytes):
        line = line[: MAX_LINE_CHARACTERS * 4].decode("utf-8", "replace")
    return _CONTROL.sub(" ", _ANSI.sub("", line[:MAX_LINE_CHARACTERS])).strip()


def recognise(line: str | bytes) -> KernelEvent | None:
    """Read a kernel-log line about a GPU or NVSwitch; return None for every other line. Never raises."""
    text = clean(line)
    if _MARKER.match(text):
        return None
    return _sxid(text) or _xid(text) or _reset(text) or _gpu_lost(text) or _peermem(text) or _unreadable_xid(text)


class LogReader:
    """Recognise the lines of one log in their order, where the driver may break a sentence about a GPU over lines.

    The first line has the GPU and the stamp, the second or the third says that the GPU has fallen off the bus.
    """

    def __init__(self) -> None:
        self._begun = ""
        self._lines_left = 0

    def recognise(self, line: str | bytes) -> KernelEvent | None:
        """Read the log's next line as `recognise` does; the line that ends a sentence is read with the first one."""
        event = recognise(line)
        if event is None and _SENTENCE.search(text := clean(line)):
            self._begun, self._lines_left = text, _SENTENCE_LINES - 1
        elif self._lines_left:
            self._lines_left -= 1
            if event and event.kind is Kind.GPU_LOST and event.pci is None:
                self._lines_left = 0
                return recognise(f"{self._begun} {event.line}") or event
        return event


def beat_uptime_s(line: str) -> float | None:
    """Return the stamp of the shipper's beat, seconds since boot; None for every other line."""
    found = _BEAT.match(clean(line))
    return float(found["seconds"]) if found else None


def _sxid(line: str) -> KernelEvent | None:
    found = _SXID.search(line)
    if not found:
        return None
    rest = line[found.end() :]
    return KernelEvent(
        Kind.SXID,
        line,
        code=int(found["code"]),
        pci=_pci(found),
        text=rest.lstrip(", ")[:_MAX_TEXT_CHARACTERS],
        uptime_s=_uptime(line),
        severity=_severity(found["severity"]),
        link=_int(found["link"]),
        switch=_int(found["switch"]),
        detail_only=bool(_SXID_DETAIL.match(rest)),
    )


def _xid(line: str) -> KernelEvent | None:
    found = _XID.search(line)
    if not found:
        return None
    code = int(found["code"])
    rest = line[found.end() :]
    process = _PROCESS.match(rest)
    text = rest[process.end() if process else 0 :].lstrip(", ")[:_MAX_TEXT_CHARACTERS]
    nvlink5 = _NVLINK5.match(text) if 144 <= code <= 150 else None
    link = _NVLINK5_LINK.search(text) if nvlink5 else None
    recovery = _RECOVERY.search(text) if code == 154 else None
    return KernelEvent(
        Kind.XID,
        line,
        code=code,
        pci=_pci(found),
        text=text,
        uptime_s=_uptime(line),
        pid=int(process["pid"]) if process and process["pid"].isdecimal() else None,
        process=process["name"] if process and process["name"] != "<unknown>" else None,
        gpu_instance=_int(found["gpu_instance"]),
        compute_instance=_int(found["compute_instance"]),
        severity=_severity(nvlink5["severity"]) if nvlink5 else None,
        link=_int(link["link"]) if link else None,
        unit=" ".join(nvlink5["unit"].split()) if nvlink5 else None,
        error_status=int(nvlink5["status"], 16) if nvlink5 and nvlink5["status"] else None,
        recovery=recovery["action"] if recovery else None,
        recovery_number=int(recovery["number"], 16) if recovery else None,
    )


def _reset(line: str) -> KernelEvent | None:
    found = _RESET.search(line)
    if not found:
        return None
    return KernelEvent(
        Kind.GPU_RESET, line, pci=_pci(found), uptime_s=_uptime(line), success=found["success"] == "true"
    )


def _gpu_lost(line: str) -> KernelEvent | None:
    if not _LOST.search(line) or not ("NVRM" in line or "GPU" in line):
        return None
    gpu = _GPU_AT.search(line)
    # The driver reports the same event as an Xid 79 elsewhere, so the event carries that code.
    return KernelEvent(
        Kind.GPU_LOST,
        line,
        code=79,
        pci=_pci(gpu) if gpu else None,
        text=line[-_MAX_TEXT_CHARACTERS:],
        uptime_s=_uptime(line),
    )


def _peermem(line: str) -> KernelEvent | None:
    _, found, rest = line.partition("nvidia-peermem ")
    if not found or "detected invalid context" not in rest:
        return None
    return KernelEvent(Kind.PEERMEM, line, text=rest[:_MAX_TEXT_CHARACTERS], uptime_s=_uptime(line))


def _unreadable_xid(line: str) -> KernelEvent | None:
    for kind, pattern in ((Kind.XID, _SOME_XID), (Kind.SXID, _SOME_SXID)):
        if found := pattern.search(line):
            return KernelEvent(kind, line, text=line[found.start() :][:_MAX_TEXT_CHARACTERS], uptime_s=_uptime(line))
    return None


def _pci(found: re.Match[str]) -> str:
    return f"{int(found['domain'] or '0', 16):04x}:{found['bus']}:{found['device']}".lower()


def _uptime(line: str) -> float | None:
    found = _STAMP.match(line)
    return float(found["seconds"]) if found else None


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


# Texts as in the driver's and its readers' tests (docs/sources.md, Lines of the driver); the numbers are examples. Of
# the NVLink5 lines 145 and 149 were captured; the first word of the others is composed as theirs is.
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
        pci: Address of the GPU, like 0000:4e:00.
        form: The form of the line.
        text: The text after code and process. None: the driver's own text where it is known, else the catalogue's name
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
    # The driver names a process where a channel or a call of a program met the error. An error of the fabric and a
    # changed recovery action need neither.
    process = "" if 144 <= code <= 150 or code == 154 else "pid='<unknown>', name=<unknown>, "
    prefix = "kernel: " if form is Form.KERNEL else ""
    return f"{prefix}NVRM: Xid ({where}): {code}, {process}{text}"
