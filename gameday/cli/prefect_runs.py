"""The flow runs that one worker of this machine runs: wait for the worker, and cancel what it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
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
from prefect.client.schemas.objects import FlowRun, StateType
from prefect.states import Cancelling

_STATES = [StateType.PENDING, StateType.RUNNING, StateType.PAUSED, StateType.CANCELLING]
"""The states of a flow run that has a process."""
_LOOK_EVERY_S = 1.0


def is_heard(pool: str, worker: str, since: datetime) -> bool:
    """Return whether a worker of this name has spoken to the server since a moment. Raises httpx.HTTPError."""
    heard = WorkerFilter(last_heartbeat_time=WorkerFilterLastHeartbeatTime(after_=since))
    with get_client(sync_client=True) as client:
        found = client.read_workers_for_work_pool(pool, worker_filter=heard)
    return any(one.name == worker for one in found)


def cancel_all(pool: str, worker: int, give_up: threading.Event, say: Callable[[str], None]) -> None:
    """Cancel what a worker runs, and wait until each run has undone its faults and ended.

    A run that waited for its turn and begins meanwhile is cancelled, too.

    Args:
        pool: The worker's pool.
        worker: The worker's process.
        give_up: If set, nothing is waited for any more.
        say: Tell a person.

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


def _runs_of(client: SyncPrefectClient, pool: str, worker: int) -> list[FlowRun]:
    found = client.read_flow_runs(
        flow_run_filter=FlowRunFilter(state=FlowRunFilterState(type=FlowRunFilterStateType(any_=_STATES))),
        work_pool_filter=WorkPoolFilter(name=WorkPoolFilterName(any_=[pool])),
    )
    return [run for run in found if _is_run_by(run, worker)]


def _is_run_by(run: FlowRun, worker: int) -> bool:
    """Return whether the run's process comes from the worker: other workers may serve the same pool."""
    number = (run.infrastructure_pid or "").rpartition(":")[2]
    pid = int(number) if number.isdecimal() else 0
    while pid > 1 and pid != worker:
        pid = _parent(pid)
    return pid == worker


def _parent(pid: int) -> int:
    """Return a process' parent; 0 for a process that is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return int(fields[1])  # proc(5): ppid
