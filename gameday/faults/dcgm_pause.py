"""A telemetry blackout: DCGM stops sampling, and its readers keep showing the last values."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.errors import HostError
from gameday.faults.base import HOST_ENGINE, Claim, Evidence, Fault, Layer, NodeNeeds
from gameday.faults.dcgm import SAMPLING, is_collection_paused, pause_collection, resume_collection
from gameday.faults.dcgm_engines import look_at_engines, refuse_blind_readers
from gameday.host.base import Host
from gameday.host.privileges import DAEMONS, PodSecurity
from gameday.plan.fault import FaultParameters

_LOOK_EVERY_S = 5.0
"""Interval at which it looks whether somebody resumed the collection, or restarted the host engine."""


class DcgmPauseParameters(FaultParameters):
    type: Literal["dcgm_pause"] = "dcgm_pause"


class DcgmPauseFault(Fault[DcgmPauseParameters]):
    """Pauses all of a node's DCGM metrics with `dcgmi test --pause`, and resumes them.

    DCGM (3.2 to 4.6) skips a paused GPU; its help says N/A. An exporter repeats the last samples as if they were fresh:
    the only sign is values that do not change. Xids still come through. A new reader finds no GPU (`dmon` fails), and
    the health watches call every GPU healthy.

    Profiling counters and NVSwitches pause, too, and `dcgmi diag` is refused. So is the fault where collection is
    paused already.
    """

    parameters: ClassVar[type[FaultParameters]] = DcgmPauseParameters
    layer: ClassVar[Layer] = Layer.TELEMETRY
    security: ClassVar[PodSecurity] = DAEMONS
    summary: ClassVar[str] = "Stops DCGM's sampling on a node: its metrics stand still, and look alive"
    does_not_reach: ClassVar[str] = (
        "NVML, the kernel log, running work; rules on absent series; a program with a DCGM host engine of its own: a "
        "known one is refused, others are named in the evidence"
    )
    seen_by: ClassVar[tuple[str, ...]] = (
        "alerts on values that do not change (DcgmHostengineFrozen)",
        "dcgmi modules -l (Paused)",
    )

    def claims(self, parameters: DcgmPauseParameters) -> tuple[Claim, ...]:
        return (Claim(SAMPLING), Claim(HOST_ENGINE, shared=True))

    def warnings(self, parameters: DcgmPauseParameters) -> tuple[str, ...]:
        return ("DCGM calls every GPU of the node healthy meanwhile: a detector that asks it may lift a quarantine",)

    def needs(self, parameters: DcgmPauseParameters) -> NodeNeeds:
        return NodeNeeds(dcgm=True)

    def prior_state(self, parameters: DcgmPauseParameters, gpu: int, host: Host) -> dict[str, str]:
        refuse_blind_readers(host)
        if is_collection_paused(host):
            raise HostError(
                "DCGM's collection is paused already, and not by this run (a `dcgmi diag`?); end that, or run "
                "`dcgmi test --resume`"
            )
        return {"before": "running"}

    def inject(self, parameters: DcgmPauseParameters, gpu: int, host: Host) -> Evidence:
        state, beside = self.prior_state(parameters, gpu, host), look_at_engines(host).lines
        written_at = datetime.now(UTC)
        output = pause_collection(host)
        if not is_collection_paused(host):
            raise HostError(f"dcgmi test --pause printed {output!r}, and DCGM's core module is not paused")
        lines = ("before: DCGM's core module runs", f"dcgmi test --pause: {output}", "after: core module paused")
        return Evidence(lines=(*lines, *beside), written_at=written_at, undo_state=state)

    def hold(self, parameters: DcgmPauseParameters, gpu: int, host: Host, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_EVERY_S):
            if not is_collection_paused(host):
                raise HostError("DCGM collects again: somebody resumed it, or restarted its host engine")

    def undo(self, parameters: DcgmPauseParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if not is_collection_paused(host):
            return Evidence(lines=("DCGM collects already: nothing to resume",))
        return Evidence(lines=(f"dcgmi test --resume: {resume_collection(host)}",))

    def verify_undone(self, parameters: DcgmPauseParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return not is_collection_paused(host)
