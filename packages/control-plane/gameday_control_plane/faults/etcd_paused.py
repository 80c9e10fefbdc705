"""etcd pauses for a bounded time, as if its disk stalled."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.documents.fields import Duration, conflict, format_duration
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host import lab_program as lab_component
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.faults.base import ControlPlaneFault, LoadParameters
from gameday_control_plane.values.api_loads import Paused

_ETCD = "etcd"
_LOOK_EVERY_S = 0.5
_RESUMES_WITHIN = timedelta(seconds=10)


class EtcdPausedParameters(LoadParameters):
    needs_lab: ClassVar[bool] = True
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT

    type: Literal["etcd_paused"] = "etcd_paused"
    lasts: Duration = Field(default=timedelta(seconds=20), ge=timedelta(seconds=1), le=timedelta(minutes=10))
    """Length of the pause."""
    begins_after: Duration = timedelta(seconds=5)
    """Time before the pause, during which nothing can be stored."""
    watched_for: Duration = timedelta(seconds=20)
    """Time after the pause within which the API server has to recover."""

    @property
    def api_server_away_for(self) -> timedelta:
        return self.lasts

    @model_validator(mode="after")
    def _ends_by_itself(self) -> EtcdPausedParameters:
        longest = self.begins_after + self.lasts + _RESUMES_WITHIN + self.watched_for
        if self.hold < longest:
            raise conflict(("hold",), f"all of it takes up to {format_duration(longest)}: hold it for as long")
        return self


class EtcdPausedFault(ControlPlaneFault[EtcdPausedParameters]):
    """Stops etcd (SIGSTOP) for a bounded time: it keeps its connections and answers nothing.

    A disk that stalls for long has the same effect. Only a lab can do it, by its control socket; elsewhere the run is
    refused. The lab itself lets etcd go on when the time is over, even if the game-day and its agent are dead.

    The fault is in when the lab has shown that etcd runs; the pause begins `begins_after` later. The run's lease
    outlasts it.
    """

    parameters: ClassVar[type[FaultParameters]] = EtcdPausedParameters
    summary: ClassVar[str] = "etcd is paused for a bounded time (lab only)"
    does_not_reach: ClassVar[str] = "the GPUs, their nodes and running pods, which need no API server to go on"
    seen_by: ClassVar[tuple[str, ...]] = (
        "every client of the API server: reads and writes fail or wait, /readyz fails",
        "the node lifecycle controller, once nodes' leases are older than its grace period",
    )

    def warnings(self, parameters: EtcdPausedParameters) -> tuple[str, ...]:
        return (f"nothing can be read or written through the API server for {format_duration(parameters.lasts)}",)

    def prior_state(self, parameters: EtcdPausedParameters, gpu: int, host: Host) -> dict[str, str]:
        state = lab_component.look(host, _ETCD)
        if state.pid is None or state.paused:
            raise HostError("etcd does not run, or is paused already and not by this run: gameday lab status")
        return {}

    def inject(self, parameters: EtcdPausedParameters, gpu: int, host: Host) -> Evidence:
        state, now = lab_component.look(host, _ETCD), datetime.now(UTC)
        lines = (
            f"before: etcd runs, process {state.pid}",
            f"from {format_duration(parameters.begins_after)} from now it is paused for "
            f"{format_duration(parameters.lasts)}; the lab lets it go on",
        )
        return Evidence(lines=lines, written_at=now)

    def hold_and_tell(
        self,
        parameters: EtcdPausedParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        if ended.wait(parameters.begins_after.total_seconds()):
            return ("ended before etcd was paused",)
        paused_at = datetime.now(UTC)
        lab_component.pause(host, _ETCD, parameters.lasts.total_seconds())
        latest = paused_at + parameters.lasts + _RESUMES_WITHIN
        while lab_component.look(host, _ETCD).paused:
            if ended.wait(_LOOK_EVERY_S):
                return ("ended while etcd was paused",)
            if datetime.now(UTC) > latest:
                raise HostError(f"the lab did not resume etcd within {format_duration(_RESUMES_WITHIN)} of its time")
        resumed_at = datetime.now(UTC)
        ended.wait(parameters.watched_for.total_seconds())
        measured = Paused(component=_ETCD, paused_at=paused_at, resumed_at=resumed_at, ended_at=datetime.now(UTC))
        tell(MeasuredNote(measured=measured))
        return (f"etcd was paused for {(resumed_at - paused_at).total_seconds():.1f} s",)

    def undo(self, parameters: EtcdPausedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> Evidence:
        if not lab_component.look(host, _ETCD).paused:
            return Evidence(lines=("etcd is not paused: nothing to resume",))
        lab_component.resume(host, _ETCD)
        return Evidence(lines=("etcd was resumed",))

    def verify_undone(self, parameters: EtcdPausedParameters, gpu: int, host: Host, undo_state: dict[str, str]) -> bool:
        state = lab_component.look(host, _ETCD)
        return state.pid is not None and not state.paused
