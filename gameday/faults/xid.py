"""An Xid in the kernel log: the line that the driver would print, where every log-based detector reads it."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field, field_validator

from gameday.errors import HostError
from gameday.faults.base import Claim, Evidence, Fault, Layer
from gameday.faults.kernel_log import MOST_REPEATS, NOTHING_TO_UNDO, write
from gameday.host.base import Host
from gameday.host.privileges import KERNEL_LOG, PodSecurity
from gameday.plan.fault import FaultParameters
from gameday.xid.catalogue import xids
from gameday.xid.lines import Form, format_xid

_READ_BY_DCGM = frozenset({79, 119, 120})
"""DCGM 4.6 parses these from the kernel log, in the bare form only (docs/sources.md, Who reads which line)."""


class XidParameters(FaultParameters):
    type: Literal["xid"] = "xid"
    xid: int = Field(ge=1, le=999)
    """The code, as in NVIDIA's Xid catalogue: 79 is a GPU fallen off the bus."""
    gpu: int | None = Field(default=None, ge=0, le=63)
    """NVML index of the GPU the line names; None: the one the run chose."""
    form: Form = Form.KERNEL
    """The form of the line; docs/sources.md, Who reads which line, says which detectors see which form."""
    repeat: int = Field(default=1, ge=1, le=MOST_REPEATS)
    """Number of times that the line is written; printk's own rate limit is ten in five seconds."""

    @field_validator("xid", mode="before")
    @classmethod
    def _a_code(cls, value: object) -> object:
        if isinstance(value, bool) or not str(value).isdecimal() or not 1 <= int(str(value)) <= 999:
            examples = ", ".join(f"{code} ({xids()[code].name})" for code in (48, 79, 119))
            raise ValueError(f"an Xid is a whole number from 1 to 999, like {examples}")
        return value

    @property
    def is_read_by_dcgm(self) -> bool:
        """True for a line that DCGM takes for the driver's."""
        return self.form is Form.BARE and self.xid in _READ_BY_DCGM


class XidFault(Fault[XidParameters]):
    """Writes an Xid line for one GPU to the node's kernel log.

    A record cannot be taken back: it stays in the ring buffer until that wraps or the node boots, and in every log
    store that it was shipped to. Its effects (a taint, an alert) are for the detector and the recovery step.

    Side effect: after a bare 119 DCGM 4.6 blanks all fields of the node's GPUs until its host engine restarts, which
    then reads the whole ring buffer again. So run `dmesg -C` or reboot the node after such a line.
    """

    parameters: ClassVar[type[FaultParameters]] = XidParameters
    layer: ClassVar[Layer] = Layer.KERNEL_LOG
    security: ClassVar[PodSecurity] = KERNEL_LOG
    summary: ClassVar[str] = "Writes an Xid line for one GPU to the node's kernel log"
    does_not_reach: ClassVar[str] = (
        "NVML (nvidia-smi, the device plugin), DCGM's counters and dcgm-exporter's metrics: the GPU itself is well"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "gameday node-health controller",
        "Konduktor (dmesg -w to Loki)",
        "gpud (/dev/kmsg; not the mig form)",
        "NVSentinel (journald; not the bare, mig or old form)",
        "node-problem-detector with a rule for Xid",
        "DCGM's Xid field, not its health (bare 79, 119, 120 only)",
    )

    def claims(self, parameters: XidParameters) -> tuple[Claim, ...]:
        return ()  # one more line in the log conflicts with nothing

    def warnings(self, parameters: XidParameters) -> tuple[str, ...]:
        if not parameters.is_read_by_dcgm:
            return ()
        effect = (
            "blanks the GPU's fields until its host engine restarts" if parameters.xid == 119 else "takes it for real"
        )
        return (
            f"dangerous: DCGM 4.6 reads a bare Xid {parameters.xid} and {effect}; a restarted host engine reads "
            f"the line again, so plan `dmesg -C` or a reboot; form: {Form.KERNEL} has no such effect",
        )

    def inject(self, parameters: XidParameters, gpu: int, host: Host) -> Evidence:
        index = gpu if parameters.gpu is None else parameters.gpu
        return write(host, _line(parameters, _pci_bus_id(host, index)), parameters.repeat)

    def undo(self, parameters: XidParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=(NOTHING_TO_UNDO,))

    def verify_undone(self, parameters: XidParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return True


def _line(parameters: XidParameters, pci: str) -> str:
    try:
        return format_xid(parameters.xid, pci, parameters.form)
    except ValueError as error:
        raise HostError(f"no Xid line for this GPU: {error}") from None


def _pci_bus_id(host: Host, index: int) -> str:
    gpus = {gpu.index: gpu for gpu in host.gpus()}
    if index not in gpus:
        raise HostError(f"no GPU {index} on this node; NVML knows {sorted(gpus) or 'none'}")
    if not gpus[index].pci_bus_id:
        raise HostError(f"GPU {index} is lost and NVML cannot show its PCI id; choose another GPU or reboot the node")
    return gpus[index].pci_bus_id
