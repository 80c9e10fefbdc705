"""An SXid in the kernel log: the driver's line for an error of an NVSwitch and of every GPU behind it."""

from __future__ import annotations

from enum import StrEnum
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from gameday.documents.fields import conflict
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.kernel_log import MOST_REPEATS, NOTHING_TO_UNDO, write
from gameday.host.base import Host
from gameday.host.privileges import KERNEL_LOG, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.xid.catalogue import sxids


class SxidSeverity(StrEnum):
    """The word in the line that says how bad the error is."""

    FATAL = "Fatal"
    NON_FATAL = "Non-fatal"


class SxidParameters(FaultParameters):
    type: Literal["sxid"] = "sxid"
    sxid: int = Field(ge=10_000, le=39_999, strict=True)
    """The code, as in the Fabric Manager guide: 20034 is a link that does not train, 12028 a refused request."""
    severity: SxidSeverity | None = None
    """The word in the line, which detectors go by; None: the driver's own for the code, if it writes one."""
    switch: int = Field(default=0, ge=0, le=63)
    """Number of the NVSwitch, as the driver counts."""
    pci: str = Field(pattern=r"^[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}$")
    """The NVSwitch's PCI id without function, e.g. 0000:c1:00; `lspci -D -d 10de::0680` lists a node's. NVSentinel
    gets stuck at a switch or link that is not in its metadata (docs/sources.md, NVSentinel)."""
    link: int | None = Field(default=0, ge=0, le=143)
    """The link that the line names; None: a line without one, as of an error of the whole switch (codes below
    11000), which NVSentinel does not read."""
    form: Literal["kernel", "bare"] = "kernel"
    """`kernel: nvidia-nvswitch…`, which every log-based reader sees, or bare as the driver writes it.

    NVSentinel misses the bare one (docs/sources.md, Who reads which line)."""
    repeat: int = Field(default=1, ge=1, le=MOST_REPEATS)
    """Number of times that the line is written; printk's own rate limit is ten in five seconds."""

    @model_validator(mode="after")
    def _severity_is_known(self) -> SxidParameters:
        if self.severity is None and self.sxid not in sxids():
            raise conflict(
                ("sxid",), f"SXid {self.sxid} is not in the catalogue: say its `severity`, Fatal or Non-fatal"
            )
        return self

    @property
    def line(self) -> str:
        """The line as it is written, without its priority."""
        known = sxids().get(self.sxid)
        word = self.severity or (known.word if known else "")
        has_link = self.link is not None and (known is None or known.has_link)
        text = f"{f'Link {self.link:02d} ' if has_link else ''}{known.text if known else 'unknown'}"
        prefix = "kernel: " if self.form == "kernel" else ""
        said = ", ".join(part for part in (f"{self.sxid:05d}", word, text) if part)
        return f"{prefix}nvidia-nvswitch{self.switch}: SXid (PCI:{self.pci}.0): {said}"


class SxidFault(Fault[SxidParameters]):
    """Writes an SXid line for one NVSwitch to the node's kernel log.

    As with an Xid line, nothing can be taken back. The switch need not exist, unless NVSentinel watches the node. The
    follow-up lines of a real switch (`Severity …`, `Data {…}`) are left out: no reader acts on them.
    """

    parameters: ClassVar[type[FaultParameters]] = SxidParameters
    layer: ClassVar[Layer] = Layer.KERNEL_LOG
    security: ClassVar[PodSecurity] = KERNEL_LOG
    summary: ClassVar[str] = "Writes an SXid line for one NVSwitch to the node's kernel log"
    does_not_reach: ClassVar[str] = (
        "the NVSwitch, the fabric manager, NVML, DCGM's NVSwitch counters; no GPU gets the Xid 74 that a real fatal "
        "one brings with it"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "gameday node-health controller (Fatal quarantines, Non-fatal is recorded)",
        "Konduktor (dmesg -w to Loki; taints on every SXid)",
        "gpud (/dev/kmsg; codes it knows)",
        "NVSentinel (journald; kernel form, with a link, of a switch in its metadata)",
        "node-problem-detector with a rule for SXid",
    )

    def claims(self, parameters: SxidParameters) -> tuple[Claim, ...]:
        return ()  # one more line in the log conflicts with nothing

    def inject(self, parameters: SxidParameters, gpu: int, host: Host) -> Evidence:
        return write(host, parameters.line, parameters.repeat)

    def undo(self, parameters: SxidParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=(NOTHING_TO_UNDO,))

    def verify_undone(self, parameters: SxidParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return True
