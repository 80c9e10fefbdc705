"""No fault: nothing changes. The smallest fault, and a control for everything that a game-day itself causes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar, Literal

from gameday.faults.base import Evidence, Fault, Layer
from gameday.host.base import Host
from gameday.host.privileges import PodSecurity
from gameday.plan.fault import FaultParameters


class NoopParameters(FaultParameters):
    type: Literal["noop"] = "noop"


class NoopFault(Fault[NoopParameters]):
    """Changes nothing.

    All the rest of a game-day happens. So it shows the effects of a game-day itself, and proves a cluster's set-up
    before anything is broken there.
    """

    parameters: ClassVar[type[FaultParameters]] = NoopParameters
    layer: ClassVar[Layer] = Layer.NODE
    security: ClassVar[PodSecurity] = PodSecurity(why="it touches nothing")
    summary: ClassVar[str] = "Changes nothing: a control for the game-day itself"
    does_not_reach: ClassVar[str] = "anything"
    seen_by: ClassVar[tuple[str, ...]] = ("nobody; a signal that comes has another cause",)

    def inject(self, parameters: NoopParameters, gpu: int, host: Host) -> Evidence:
        return Evidence(lines=("nothing was changed",), written_at=datetime.now(UTC))

    def undo(self, parameters: NoopParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        return Evidence(lines=("there is nothing to undo",))

    def verify_undone(self, parameters: NoopParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        return True
