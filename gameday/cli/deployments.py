"""The deployments of prefect.yaml, with forms that offer plans and clusters to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import MissingFlowError, ObjectAlreadyExists
from prefect.runner.storage import LocalStorage
from prefect.schedules import Cron, Interval, Schedule
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from gameday.documents.explain import explain
from gameday.documents.read import decode, read
from gameday.documents.source import parse
from gameday.errors import CommandError, DocumentError
from gameday.tasks.cluster_seasons import deployment_of, pool_of

_SET_BY_PROGRAMS = frozenset(
    {"trigger", "run_id", "season_id", "fleet_id", "comparison_id", "command", "member", "arm", "reports"}
)
"""Parameters of flows that the command line, a season, a schedule or a deployment sets, and nobody by hand."""
_PLAYS_ARMS = "comparison"
"""The flow that plays plans with arms."""
_WORDS = {
    "plan": ("Plan", "What breaks, and what must notice it. `gameday plans` describes each."),
    "plans": ("Plans", "What breaks. Empty: every shipped plan that is not dangerous. `gameday plans` describes each."),
    "profile": ("Cluster", "Path of the cluster's profile, or block:NAME. Empty: the worker's `GAMEDAY_*` variables."),
}
"""Title and description of the parameters whose values the form offers."""
_POOL = "gameday"
"""The work pool of prefect.yaml."""
_REAP_EVERY_S = 300
"""The interval of the reaper in prefect.yaml."""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeclaredSchedule(_Declared):
    """A schedule of prefect.yaml."""

    cron: str | None = None
    timezone: str | None = None
    interval: PositiveInt | None = None
    """Seconds."""
    active: bool = True

    @model_validator(mode="after")
    def _either(self) -> DeclaredSchedule:
        if (self.cron is None) == (self.interval is None):
            raise ValueError("give cron or interval")
        return self

    def built(self) -> Schedule:
        """Return Prefect's own."""
        if self.cron is not None:
            return Cron(self.cron, timezone=self.timezone, active=self.active)
        return Interval(timedelta(seconds=self.interval or 0), active=self.active)


class DeclaredPool(_Declared):
    """The work pool of a deployment."""

    name: str


class DeclaredDeployment(_Declared):
    """A deployment of prefect.yaml, with the keys that this project uses."""

    name: str
    description: str
    entrypoint: str
    concurrency_limit: int | None = None
    parameters: dict[str, Any] = {}
    schedules: tuple[DeclaredSchedule, ...] = ()
    work_pool: DeclaredPool


class DeclaredProject(_Declared):
    """A prefect.yaml."""

    name: str
    prefect_version: str | None = Field(default=None, alias="prefect-version")
    deployments: tuple[DeclaredDeployment, ...]


@dataclass(frozen=True)
class Choices:
    """The values that forms offer."""

    plans: Sequence[str]
    """Names of shipped plans, and paths of plan files, without arms."""
    with_arms: Sequence[str]
    """The same of plans with arms, which are played together."""
    profiles: Mapping[str, str]
    """The clusters' names by paths or blocks of their profiles; the first is chosen where nobody chooses.

    Empty: the environment's.
    """
    blocks: Sequence[str]
    """The other blocks of cluster profiles that the server has, which are offered, too."""
    reports: str
    """Folder of the runs' folders."""
    clusters: Mapping[str, str] = field(default_factory=dict)
    """Profiles, by name, of the clusters that have deployments and a work pool of their own."""


def declared(file: Path) -> tuple[DeclaredDeployment, ...]:
    """Return the deployments of a prefect.yaml. Raises DocumentError."""
    source = parse(decode(read(file), str(file)), str(file))
    try:
        return DeclaredProject.model_validate(source.data).deployments
    except ValidationError as error:
        raise DocumentError(explain(error, source, str(file), DeclaredProject)) from None


def per_cluster(clusters: Mapping[str, str]) -> Iterator[DeclaredDeployment]:
    """Yield the deployments of each cluster in its own work pool, and the one that starts seasons on all of them.

    Args:
        clusters: The profiles by the clusters' names.
    """
    flows = "gameday.flows"
    for name, profile in clusters.items():
        pool, own = DeclaredPool(name=pool_of(name)), {"profile": profile}
        yield DeclaredDeployment(
            name=deployment_of(name).partition("/")[2],
            description=f"A season on cluster {name}; seasons/clusters starts it beside those of other clusters.",
            entrypoint=f"{flows}.season.season",
            concurrency_limit=1,
            parameters=own,
            work_pool=pool,
        )
        yield DeclaredDeployment(
            name=deployment_of(name).partition("/")[2],
            description=f"Undo what dead runs left in cluster {name}.",
            entrypoint=f"{flows}.reaper.reaper",
            concurrency_limit=1,
            parameters=own,
            schedules=(DeclaredSchedule(interval=_REAP_EVERY_S),),
            work_pool=pool,
        )
    yield DeclaredDeployment(
        name="clusters",
        description="A season on each of several clusters at the same time, and one page with a row per cluster.",
        entrypoint=f"{flows}.seasons.seasons",
        parameters={"clusters": list(clusters)},
        work_pool=DeclaredPool(name=_POOL),
    )


def register_deployments(declared: Sequence[DeclaredDeployment], choices: Choices, folder: Path) -> list[str]:
    """Register deployments, and the work pools that they need, at the Prefect server of the settings.

    One that is there already is replaced, its schedules included.

    Args:
        declared: The deployments.
        choices: The values that their forms offer.
        folder: The folder in which their worker runs them.

    Returns:
        Their names, as Prefect has them: flow/deployment.

    Raises:
        CommandError: The flow of one of them is not there; nothing is registered then.
        DeploymentApplyError: The server takes one of them not.
        TransportError: It does not answer (httpx).
    """
    built = [_built(one, choices, folder) for one in declared]
    with get_client(sync_client=True) as client:
        for pool in dict.fromkeys(one.work_pool.name for one in declared):
            try:
                client.create_work_pool(WorkPoolCreate(name=pool, type="process"))
            except ObjectAlreadyExists:
                continue
    for deployment in built:
        deployment.apply()
    return [deployment.full_name for deployment in built]


def _built(one: DeclaredDeployment, choices: Choices, folder: Path) -> RunnerDeployment:
    try:
        built = RunnerDeployment.from_entrypoint(
            one.entrypoint,
            name=one.name,
            description=one.description,
            concurrency_limit=one.concurrency_limit,
            schedules=[schedule.built() for schedule in one.schedules],
            work_pool_name=one.work_pool.name,
        )
    except (ImportError, MissingFlowError) as error:
        raise CommandError(f"deployment {one.name}: entrypoint {one.entrypoint!r} is no flow: {error}") from None
    # Without it the worker would copy the whole folder for each run.
    built.storage = LocalStorage(str(folder))
    schema = built._parameter_openapi_schema
    values = {"profile": next(iter(choices.profiles), None), "reports": choices.reports}
    own = {name: value for name, value in values.items() if value and name in schema.properties}
    built.parameters = own | one.parameters
    schema.properties = dict(_shown(built.flow_name, schema.properties, choices, built.parameters))
    return built


def _shown(
    flow: str | None, properties: Mapping[str, dict[str, Any]], choices: Choices, defaults: Mapping[str, Any]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the parameters that a person sets, with the values to choose from where there are some."""
    profiles = list(dict.fromkeys([*choices.profiles, *choices.blocks]))
    offered = {"plan": list(choices.with_arms if flow == _PLAYS_ARMS else choices.plans), "profile": profiles}
    for name, written in properties.items():
        if name in _SET_BY_PROGRAMS:
            continue
        title, description = _WORDS.get(name, (name.replace("_", " ").capitalize(), written.get("description", "")))
        shown = _without_null(written) | {"title": title, "description": description}
        if values := offered.get(name):
            shown["enum"] = values
        if name == "profile" and profiles:
            named = ", ".join(f"`{source}` is {cluster}" for source, cluster in choices.profiles.items())
            shown["description"] = "The cluster, by its profile" + (f": {named}." if named else ".")
        if name == "plans":
            shown["items"] = {"type": "string", "enum": [*choices.plans, *choices.with_arms]}
        if name == "clusters":
            shown["items"] = {"type": "string", "enum": list(choices.clusters)}
        if name in defaults:
            shown["default"] = defaults[name]
        yield name, shown


def _without_null(written: dict[str, Any]) -> dict[str, Any]:
    """Return an optional parameter as one that may be left empty: the form would ask for its type first."""
    kinds = [kind for kind in written.get("anyOf", ()) if kind.get("type") != "null"]
    if len(kinds) != 1:
        return dict(written)
    rest = {key: value for key, value in written.items() if key != "anyOf" and (key, value) != ("default", None)}
    kind: dict[str, Any] = kinds[0]
    return kind | rest
