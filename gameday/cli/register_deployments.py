"""Register deployments at the server, or update them without touching what people changed there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import DeploymentScheduleCreate, DeploymentUpdate, WorkPoolCreate
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import SCHEDULE_TYPES, CronSchedule, IntervalSchedule, RRuleSchedule
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import ObjectAlreadyExists, ObjectNotFound

from gameday.cli.automations import NAMES
from gameday.cli.deployment_form import Choices
from gameday.cli.deployments import DeclaredDeployment, built, fill_in
from gameday.cli.redeploy import (
    Registered,
    Settings,
    changed_by_people,
    digests_of,
    kept_lines,
    read_last,
    remember,
)
from gameday.errors import CommandError
from gameday.text import shown

_POOL = ("work_pool_name", "work_queue_name")
_FIELDS = ("description", "tags", "concurrency_limit", "paused", "job_variables", "enforce_parameter_schema", *_POOL)
"""The fields of a deployment that people may change, as Prefect names them; its code's place is always the files'."""
_PARAMETER, _SCHEDULE, _ACTIVE = "parameter ", "schedule ", ", active"
"""Prefixes and a suffix of the names of settings that can occur any number of times."""
_PROFILES = f"{_PARAMETER}profiles"
"""The places of the clusters' profiles, which always come from the files: the form names the clusters on offer now."""


def register_deployments(
    declared: Sequence[DeclaredDeployment], choices: Choices, folder: Path, reset: Sequence[str] = ()
) -> Registered:
    """Register deployments, and their work pools, at the Prefect server of the settings.

    If a deployment exists already, people's changes stay. One that they deleted is not made again.

    Args:
        declared: The deployments.
        choices: The values that their forms offer.
        folder: The folder in which their worker runs them.
        reset: Names of deployments and automations to reset to the files, even if people changed them.

    Raises:
        CommandError: A flow does not exist, or `reset` names none of them; nothing is registered then.
        DeploymentApplyError: The server does not take one of them.
        HTTPError: It does not answer, or refuses (httpx).
    """
    wanted = [built(one, choices, folder) for one in declared]
    known = [*(one.full_name for one in wanted), *NAMES]
    if unknown := sorted(set(reset) - set(known)):
        raise CommandError(f"--reset {shown(unknown[0])}: nothing has this name; there are: {', '.join(known)}")
    result = Registered([], [])
    with get_client(sync_client=True) as client:
        for pool in dict.fromkeys(one.work_pool.name for one in declared):
            try:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            except ObjectAlreadyExists:
                result.kept.extend(_kept_of_pool(client, pool))
        for deployment in wanted:
            name = deployment.full_name
            files, there, last = _of_files(deployment), _read(client, name), read_last(client, name)
            if there is None and last is not None and name not in reset:
                result.kept.append(f"{name}: kept deleted")
                continue
            if there is None:
                fill_in(deployment, choices)
                deployment.apply()
            else:
                result.kept.extend(_bring_up_to_date(client, deployment, there, last, choices, reset=name in reset))
            remember(client, name, files)
            result.names.append(name)
    return result


def _kept_of_pool(client: SyncPrefectClient, pool: str) -> Iterator[str]:
    found = client.read_work_pool(pool)
    if found.is_paused:
        yield f"work pool {pool}: kept paused; nothing starts until `prefect work-pool resume {pool}`"
    if found.concurrency_limit is not None:
        yield f"work pool {pool}: kept its limit of {found.concurrency_limit} runs at a time"
    for queue in client.read_work_queues(work_pool_name=pool):
        if queue.is_paused:
            resume = f"prefect work-queue resume {queue.name} --pool {pool}"
            yield f"work queue {queue.name} of pool {pool}: kept paused; nothing starts in it until `{resume}`"
        if queue.concurrency_limit is not None:
            yield f"work queue {queue.name} of pool {pool}: kept its limit of {queue.concurrency_limit} runs at a time"


def _read(client: SyncPrefectClient, name: str) -> DeploymentResponse | None:
    try:
        return client.read_deployment_by_name(name)
    except ObjectNotFound:
        return None


def _bring_up_to_date(
    client: SyncPrefectClient,
    deployment: RunnerDeployment,
    there: DeploymentResponse,
    last: Mapping[str, str] | None,
    choices: Choices,
    *,
    reset: bool,
) -> list[str]:
    """Update an existing deployment to what the files say; return a line for each thing that is kept."""
    files = _of_files(deployment)
    now = _of_server(there, files)
    files = {name: value for name, value in files.items() if not name.endswith(_ACTIVE) or name in now}
    if reset:
        last = digests_of(now)
    elif last is None:  # Prefect's own command made it, so nothing tells our schedules from people's
        last = {name: digest for name, digest in digests_of(files).items() if name.startswith(_SCHEDULE)}
    kept = [name for name in changed_by_people(files, now, last) if name != _PROFILES]
    settled = {name: files[name] for name in files if name not in kept} | {
        name: now[name] for name in kept if name in now
    }
    _write_fields(client, deployment, there, settled, choices)
    _write_schedules(client, deployment, there, settled)
    return kept_lines(deployment.full_name, kept, files, now)


def _of_files(wanted: RunnerDeployment) -> dict[str, Any]:
    return {
        "description": wanted.description,
        "tags": wanted.tags,
        "concurrency_limit": wanted.concurrency_limit,
        "paused": False,
        "job_variables": {},
        "enforce_parameter_schema": True,
        "work_pool_name": wanted.work_pool_name,
        "work_queue_name": "default",
        **{f"{_PARAMETER}{name}": value for name, value in wanted.parameters.items()},
        **{f"{_SCHEDULE}{one.slug}": _times(one.schedule) for one in _schedules(wanted)},
        **{f"{_SCHEDULE}{one.slug}{_ACTIVE}": one.active for one in _schedules(wanted)},
    }


def _of_server(there: DeploymentResponse, files: Settings) -> dict[str, Any]:
    """Return the server's values; for a deleted pool, those of the files."""
    limit = there.global_concurrency_limit
    return {
        "description": there.description,
        "tags": there.tags,
        "concurrency_limit": limit.limit if limit else None,
        "paused": there.paused,
        "job_variables": there.job_variables,
        "enforce_parameter_schema": there.enforce_parameter_schema,
        **{name: (getattr(there, name) if there.work_pool_name else files[name]) for name in _POOL},
        **{f"{_PARAMETER}{name}": value for name, value in there.parameters.items()},
        **{f"{_SCHEDULE}{_name(one)}": _times(one.schedule) for one in there.schedules},
        **{
            name: one.active
            for one in there.schedules
            if (name := f"{_SCHEDULE}{_name(one)}{_ACTIVE}") in files  # else it is people's, and left alone
        },
    }


def _schedules(wanted: RunnerDeployment) -> list[DeploymentScheduleCreate]:
    return [one for one in wanted.schedules or () if isinstance(one, DeploymentScheduleCreate)]


def _name(schedule: DeploymentSchedule) -> str:
    """Return a schedule's slug, or the beginning of its id if it was made in Prefect's pages and has none."""
    return schedule.slug or str(schedule.id)[:8]


def _times(schedule: SCHEDULE_TYPES) -> str:
    match schedule:
        case CronSchedule():
            return f"{schedule.cron} {schedule.timezone or 'UTC'}"
        case IntervalSchedule():
            return f"every {schedule.interval.total_seconds():g} s"
        case RRuleSchedule():
            return f"{schedule.rrule} {schedule.timezone or 'UTC'}"
    return "never"


def _write_fields(
    client: SyncPrefectClient,
    wanted: RunnerDeployment,
    there: DeploymentResponse,
    settled: Settings,
    choices: Choices,
) -> None:
    """Write the fields of a deployment that are not yet as they should be.

    Each write makes the scheduled runs a second time, and with them one that somebody has put off; so nothing is
    written that is right already.
    """
    takes = wanted._parameter_openapi_schema.properties
    wanted.parameters = {
        name: settled[key] for key in settled if (name := key.removeprefix(_PARAMETER)) != key and name in takes
    }
    fill_in(wanted, choices)
    if there.work_pool_name is None or any(settled[name] != getattr(there, name) for name in _POOL):
        update = {name: settled[name] for name in _POOL}  # together: Prefect reads a queue without its pool as another
    else:
        update = {}
    limit = there.global_concurrency_limit
    current = {**there.model_dump(), "concurrency_limit": limit.limit if limit else None}
    update |= {name: settled[name] for name in _FIELDS if name not in _POOL and settled[name] != current[name]}
    ours = {
        "parameters": wanted.parameters,
        "parameter_openapi_schema": wanted._parameter_openapi_schema.model_dump(exclude_unset=True),
        "entrypoint": wanted.entrypoint,
        "pull_steps": [wanted.storage.to_pull_step()] if wanted.storage else None,
        "version": wanted.version,
    }
    update |= {name: value for name, value in ours.items() if value != current[name]}
    if update:
        client.update_deployment(there.id, DeploymentUpdate(**update))


def _write_schedules(
    client: SyncPrefectClient, wanted: RunnerDeployment, there: DeploymentResponse, settled: Settings
) -> None:
    """Make, change and delete schedules one by one: writing all of them would recreate them, paused ones as active."""
    found = {_name(one): one for one in there.schedules}
    for one in _schedules(wanted):
        key, old = f"{_SCHEDULE}{one.slug}", found.get(str(one.slug))
        if key not in settled:
            continue
        if old is None:
            client.create_deployment_schedules(there.id, [one])
            continue
        is_ours = settled[key] == _times(one.schedule)
        schedule, active = one.schedule if is_ours else old.schedule, settled[f"{key}{_ACTIVE}"]
        if (_times(schedule), active) != (_times(old.schedule), old.active):
            # Prefect empties the parameters of a schedule that is written without them (3.8).
            client.update_deployment_schedule(there.id, old.id, active, schedule, parameters=old.parameters)
    for slug, old in found.items():
        if f"{_SCHEDULE}{slug}" not in settled:
            client.delete_deployment_schedule(there.id, old.id)
