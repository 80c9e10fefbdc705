"""Flow runs that were cancelled by a worker that has ended since: the next `gameday up` shows them as cancelled."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from uuid import UUID

import pytest
from prefect import flow
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.states import Cancelling

from gameday.cli.prefect_runs import end_cancelled


@flow
def played() -> None:
    """Do nothing."""


def cancelling(client: SyncPrefectClient, deployment: UUID, process: str) -> UUID:
    """Return a flow run that is being cancelled, in this process."""
    run = client.create_flow_run_from_deployment(deployment).id
    client.update_flow_run(run, infrastructure_pid=process)
    client.set_flow_run_state(run, Cancelling(), force=True)
    return run


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_still_reads_cancelling_and_has_no_process_here_is_cancelled(
    whole_prefect: None,
) -> None:
    with get_client(sync_client=True) as client:
        client.create_work_pool(WorkPoolCreate(name="gameday", type="process"))
        deployment = client.create_deployment(client.create_flow(played), "manual", work_pool_name="gameday")
        here = socket.gethostname()
        gone = cancelling(client, deployment, f"{here}:{os.getpid()}")  # the number is another process' by now
        elsewhere = cancelling(client, deployment, "another-machine:1")
        lives = cancelling(client, deployment, f"{here}:1")
        sleeper = [sys.executable, "-c", "input()"]
        environment = {"PREFECT__FLOW_RUN_ID": str(lives)}
        with subprocess.Popen(sleeper, stdin=subprocess.PIPE, env=environment) as process:
            client.update_flow_run(lives, infrastructure_pid=f"{here}:{process.pid}")
            end_cancelled("gameday")
            process.kill()
        states = [client.read_flow_run(one).state_name for one in (gone, elsewhere, lives)]
    assert states == ["Cancelled", "Cancelling", "Cancelling"]
