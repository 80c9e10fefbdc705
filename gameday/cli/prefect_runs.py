"""The flow runs of one worker on this machine: wait for the worker, and cancel its runs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import (
    FlowRunFilter,
    FlowRunFilterState,
    FlowRunFilterStateType,
    WorkerFilter,
    WorkerFilterLastHeartbeatTime,
    WorkPoolFilter,
    WorkPoolFilterName,
)
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.states import Cancelled, Cancelling

_STATES = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
"""The states of a flow run that has a process."""
_LOOK_EVERY_S = 1.0


def is_heard(pool: str, worker: str, since: datetime) -> bool:
    """Return True if a worker of this name has contacted the server since a moment. Raises httpx.HTTPError."""
    heard = WorkerFilter(last_heartbeat_time=WorkerFilterLastHeartbeatTime(after_=since))
    with get_client(sync_client=True) as client:
        found = client.read_workers_for_work_pool(pool, worker_filter=heard)
    return any(one.name == worker for one in found)


def cancel_all(pool: str, worker: int, give_up: threading.Event, say: Callable[[str], None]) -> None:
    """Cancel a worker's runs, and wait until each has undone its faults and ended.

    A run that waited for its turn and begins meanwhile is cancelled, too.

    Args:
        pool: The worker's pool.
        worker: The worker's process.
        give_up: If set, nothing is awaited any more.
        say: Tells a person.

    Raises:
        HTTPError: The server does not answer (httpx).
    """
    cancelled: set[UUID] = set()
    with get_client(sync_client=True) as client:
        while runs := _runs_of(client, pool, worker):
            for run in runs:
                if run.id not in cancelled and run.state_type is not StateType.CANCELLING:
                    client.set_flow_run_state(run.id, Cancelling())
                    say(f"{run.name}: cancelled, and undone now; a second Ctrl-C leaves that to `gameday reap`")
                cancelled.add(run.id)
            if give_up.wait(_LOOK_EVERY_S):
                return
    end_cancelled(pool)


def end_cancelled(pool: str) -> None:
    """Mark as cancelled the runs that still read *Cancelling* although their process on this machine is gone.

    A worker sets the last state of a run that it cancels seconds after the run's process ended, and may itself have
    ended meanwhile.

    Raises:
        HTTPError: The server does not answer (httpx).
    """
    with get_client(sync_client=True) as client:
        for run in _read(client, pool, [StateType.CANCELLING]):
            host, _, pid = (run.infrastructure_pid or "").rpartition(":")
            if host == socket.gethostname() and not _carries(pid, run):
                cancelled: State[Any] = Cancelled(message="Cancelled as `gameday up` ended; its tags have the outcome.")
                client.set_flow_run_state(run.id, cancelled, force=True)


def _runs_of(client: SyncPrefectClient, pool: str, worker: int) -> list[FlowRun]:
    return [run for run in _read(client, pool, _STATES) if _is_run_by(run, worker)]


def _read(client: SyncPrefectClient, pool: str, states: list[StateType]) -> list[FlowRun]:
    return client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=states))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )


def _is_run_by(run: FlowRun, worker: int) -> bool:
    """Return True if this worker started the run's process: other workers may serve the same pool."""
    number = (run.infrastructure_pid or "").rpartition(":")[2]
    pid = int(number) if number.isdecimal() else 0
    while pid > 1 and pid != worker:
        pid = _parent(pid)
    return pid == worker


def _carries(pid: str, run: FlowRun) -> bool:
    """Return True if a process was started for the run; False if it is gone and its number is used again."""
    try:
        environment = Path(f"/proc/{int(pid)}/environ").read_bytes()
    except (OSError, ValueError):
        return False
    return f"PREFECT__FLOW_RUN_ID={run.id}".encode() in environment.split(b"\0")


def _parent(pid: int) -> int:
    """Return the parent of a process, or 0 if the process is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])  # proc(5): ppid
