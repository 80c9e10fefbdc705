"""Lines in the kernel log as a plan spells them: what no other fault composes, such as a case of the corpus."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.kernel_log import MOST_REPEATS, NOTHING_TO_UNDO, write
from gameday.host.base import Host
from gameday.host.privileges import KERNEL_LOG, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.xid.lines import MAX_RECORD_BYTES

# The address in a line of the driver about a GPU; a switch has an address of its own.
_OF_A_GPU = re.compile(
    r"(NVRM: (?:Xid \((?:PCI:)?|GPU at PCI:|GPU |The NVIDIA GPU ))[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}"
)


def _check_line(line: str) -> str:
    if not line.isprintable() or line != line.strip():
        raise ValueError("a line is printable text without blanks around it")
    if len(line.encode()) > MAX_RECORD_BYTES - len("<3>"):
        raise ValueError(f"a line has {MAX_RECORD_BYTES} bytes at most, with its prefix")
    if "gameday" in line:
        raise ValueError("a line with `gameday` might pass for a note of ours: take another word")
    return line


class KernelLinesParameters(FaultParameters):
    type: Literal["kernel_lines"] = "kernel_lines"
    lines: tuple[Annotated[str, AfterValidator(_check_line)], ...] = Field(min_length=1, max_length=MOST_REPEATS)
    """The messages, without stamp and priority, in their order. A GPU's address in a line of the NVIDIA driver is
    replaced by the chosen GPU's."""


class KernelLinesFault(Fault[KernelLinesParameters]):
    """Writes given lines to the node's kernel log.

    As with an Xid line, nothing can be taken back, and a detector does what it does for such a line.
    """

    parameters: ClassVar[type[FaultParameters]] = KernelLinesParameters
    layer: ClassVar[Layer] = Layer.KERNEL_LOG
    security: ClassVar[PodSecurity] = KERNEL_LOG
    summary: ClassVar[str] = "Writes given lines to the node's kernel log"
    does_not_reach: ClassVar[str] = "everything but readers of the kernel log: no GPU, switch or counter changes"
    seen_by: ClassVar[tuple[str, ...]] = ("readers of the kernel log that know the lines",)

    def claims(self, parameters: KernelLinesParameters) -> tuple[Claim, ...]:
        return ()  # more lines in the log conflict with nothing

    def inject(self, parameters: KernelLinesParameters, gpu: int, host: Host) -> Evidence:
        pci = next((one.pci_bus_id for one in host.gpus() if one.index == gpu), "")
        lines = [_OF_A_GPU.sub(lambda found: found[1] + pci, line) if pci else line for line in parameters.lines]
        written = [write(host, line, 1) for line in lines]
        return Evidence(lines=tuple(said for one in written for said in one.lines), written_at=written[0].written_at)

    def undo(self, parameters: KernelLinesParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=(NOTHING_TO_UNDO,))

    def verify_undone(
        self, parameters: KernelLinesParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return True
