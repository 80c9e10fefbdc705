"""The deployments of prefect.yaml and of each cluster, with the forms of their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from prefect.deployments.runner import RunnerDeployment
from prefect.exceptions import MissingFlowError
from prefect.runner.storage import LocalStorage
from prefect.schedules import Cron, Interval, Schedule
from pydantic import BaseModel, ConfigDict, Field, PositiveInt, ValidationError, model_validator

from gameday import __version__
from gameday.cli.deployment_form import ASKED, Choices, form, required
from gameday.documents.explain import explain
from gameday.documents.read import decode, read
from gameday.documents.source import parse
from gameday.errors import CommandError, DocumentError
from gameday.tasks.cluster_seasons import deployment_of, pool_of

_POOL = "gameday"
"""The work pool of prefect.yaml."""
_REAP_EVERY_S = 300
"""The reaper's interval in prefect.yaml."""
BREAKS = "breaks-things"
"""The tag of deployments that break things."""


class _Declared(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DeclaredSchedule(_Declared):
    """A schedule of prefect.yaml."""

    slug: str | None = None
    """Its name, by which a later deploy finds it again. None: its position in the list."""
    cron: str | None = None
    timezone: str | None = None
    interval: PositiveInt | None = None
    """Seconds between two runs."""
    active: bool = True

    @model_validator(mode="after")
    def _either(self) -> DeclaredSchedule:
        if (self.cron is None) == (self.interval is None):
            raise ValueError("give cron or interval")
        return self

    def built(self, place: int) -> Schedule:
        """Return Prefect's own schedule. `place` counts from 1."""
        slug = self.slug or str(place)
        if self.cron is not None:
            return Cron(self.cron, timezone=self.timezone, active=self.active, slug=slug)
        return Interval(timedelta(seconds=self.interval or 0), timezone=self.timezone, active=self.active, slug=slug)


class DeclaredPool(_Declared):
    """The work pool of a deployment."""

    name: str


class DeclaredDeployment(_Declared):
    """A deployment of prefect.yaml, with the keys that we use."""

    name: str
    description: str
    tags: tuple[str, ...] = ()
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


def declared(file: Path) -> tuple[DeclaredDeployment, ...]:
    """Return the deployments of a prefect.yaml, without those of packages that are not installed.

    Raises DocumentError.
    """
    source = parse(decode(read(file), str(file)), str(file))
    try:
        found = DeclaredProject.model_validate(source.data).deployments
    except ValidationError as error:
        raise DocumentError(explain(error, source, str(file), DeclaredProject)) from None
    return tuple(one for one in found if not _is_of_absent_package(one.entrypoint))


def _is_of_absent_package(entrypoint: str) -> bool:
    package = entrypoint.partition(".")[0]
    return package.startswith("gameday_") and find_spec(package) is None


def per_cluster(clusters: Sequence[str]) -> Iterator[DeclaredDeployment]:
    """Yield the deployments of each cluster in its own work pool, and the one that starts seasons on all of them.

    Args:
        clusters: The clusters' names.
    """
    flows = "gameday.flows"
    for name in clusters:
        pool, own = DeclaredPool(name=pool_of(name)), {"profile": name}
        yield DeclaredDeployment(
            name=deployment_of(name).partition("/")[2],
            description=f"**Breaks GPUs on purpose**: a season on cluster {name}. Asks for approval on its page.",
            tags=(BREAKS,),
            entrypoint=f"{flows}.season.season",
            concurrency_limit=1,
            parameters=own,
            work_pool=pool,
        )
        yield DeclaredDeployment(
            name=f"on-{name} (undoes only)",
            description=f"Undo what dead runs left in cluster {name}. Breaks nothing.",
            entrypoint=f"{flows}.reaper.reaper",
            concurrency_limit=1,
            parameters=own,
            schedules=(DeclaredSchedule(slug="reaper", interval=_REAP_EVERY_S),),
            work_pool=pool,
        )
    yield DeclaredDeployment(
        name="clusters (breaks GPUs)",
        description="**Breaks GPUs on purpose**: a season on each of several clusters at the same time, and one page "
        "with a row per cluster. Each season asks for approval on its own page, unless the form names who approved.",
        tags=(BREAKS,),
        entrypoint=f"{flows}.seasons.seasons",
        parameters={"clusters": list(clusters)},
        work_pool=DeclaredPool(name=_POOL),
    )


def built(one: DeclaredDeployment, choices: Choices, folder: Path) -> RunnerDeployment:
    """Return a deployment that is not registered yet and has no form (`fill_in` adds it).

    Args:
        one: The deployment.
        choices: The values that its form will offer.
        folder: The folder in which its worker runs it.

    Raises:
        CommandError: Its entrypoint is not a flow.
    """
    try:
        made = RunnerDeployment.from_entrypoint(
            one.entrypoint,
            name=one.name,
            description=one.description,
            tags=list(one.tags),
            concurrency_limit=one.concurrency_limit,
            schedules=[schedule.built(place) for place, schedule in enumerate(one.schedules, 1)],
            work_pool_name=one.work_pool.name,
            version=__version__,
        )
    except (ImportError, MissingFlowError) as error:
        raise CommandError(f"deployment {one.name}: entrypoint {one.entrypoint!r} is not a flow: {error}") from None
    # Otherwise the worker would copy the whole folder for each run.
    made.storage = LocalStorage(str(folder))
    properties = made._parameter_openapi_schema.properties
    named = {name: properties[name].get("default") for name in ASKED if name in properties and BREAKS in one.tags}
    asked = {name: value for name, value in named.items() if value is not None}
    made.parameters = asked | choices.parameters(properties) | one.parameters
    return made


def fill_in(deployment: RunnerDeployment, choices: Choices) -> None:
    """Give a deployment the form of its parameters, with its present values as defaults."""
    schema = deployment._parameter_openapi_schema
    schema.properties = dict(form(deployment.flow_name, schema.properties, choices, deployment.parameters))
    schema.required = required(schema.properties, schema.required, breaks=BREAKS in deployment.tags)
