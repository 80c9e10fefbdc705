"""The probes of a plan: questions of the cluster's owners, asked before, during and after the fault.

A probe holds, does not hold, or cannot be read. It is asked once before the fault, so that one which always holds or
always fails is noticed, and then again and again.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import timedelta
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic.functional_validators import AfterValidator
from pydantic_core import PydanticCustomError

from gameday.documents.fields import PLAN_NAME, Bound, DocumentModel, Duration, LabelKey, LabelValue, conflict
from gameday.expect.base import Expectation, Path
from gameday.values.patterns import why_no_pattern

TARGETS = "$targets"
"""Placeholder in a query for the targets' names, as a pattern for `=~`."""
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox", "toybox"})


def _pattern(value: str) -> str:
    if why := why_no_pattern(value):
        raise PydanticCustomError("pattern", "RE2 cannot read this pattern: {why}", {"why": why})
    return value


Pattern = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(_pattern)]
"""A regular expression in RE2's syntax, which must match somewhere in the text."""


def _url(value: str) -> str:
    """Refuse a URL with credentials, which a report would show, and the addresses of clouds' metadata services."""
    try:
        parts = urlsplit(value)
        host, _ = parts.hostname, parts.port  # reading a bad port raises, too
    except ValueError as error:
        raise PydanticCustomError("url", "no URL: {why}", {"why": str(error)}) from None
    if parts.scheme not in ("http", "https") or not host or parts.fragment or not value.isprintable() or " " in value:
        raise PydanticCustomError("url", "a URL begins with http:// or https://, names a host, and has no #fragment")
    if parts.username is not None or parts.password is not None:
        raise PydanticCustomError("url", "a URL with credentials would be shown in the report: leave them out")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return value
    if address.is_link_local:
        raise PydanticCustomError("url", "link-local addresses are clouds' metadata services: they are not asked")
    return value


Url = Annotated[str, Field(max_length=2048), AfterValidator(_url)]


def _argv(value: tuple[str, ...]) -> tuple[str, ...]:
    if any("\0" in word for word in value):
        raise PydanticCustomError("command", "no word of a command can hold a NUL")
    if PurePosixPath(value[0]).name in _SHELLS:
        raise PydanticCustomError("command", "no shell: name the program itself, and each of its arguments as a word")
    return value


Argv = Annotated[
    tuple[Annotated[str, Field(max_length=1024)], ...], Field(min_length=1, max_length=64), AfterValidator(_argv)
]
"""A program and its arguments, one word each, run without a shell."""


class PromqlProbe(DocumentModel):
    """A query to the cluster's Prometheus with values that must be within limits."""

    query: str = Field(min_length=1, max_length=4000)
    """The query. `$targets` in it stands for a pattern of the targets' names, as in `{node=~"$targets"}`. If there is
    no series the probe cannot be read, because absent data is not zero."""
    at_least: float | None = Field(default=None, allow_inf_nan=False)
    """Smallest value allowed."""
    at_most: float | None = Field(default=None, allow_inf_nan=False)
    """Largest value allowed."""
    series: Literal["every", "any"] = "every"
    """Series that must be within the limits: `every` one, or `any` one."""

    @model_validator(mode="after")
    def _has_limit(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise conflict((), "give at_least, at_most or both: a query alone says nothing about what is good")
        return self

    def admits(self, value: float) -> bool:
        """Return True if a value is within the limits; False for NaN."""
        above = self.at_least is None or value >= self.at_least
        return above and (self.at_most is None or value <= self.at_most)


class HttpProbe(DocumentModel):
    """A GET request from the run's own process, which follows no redirect."""

    url: Url
    """Address, without credentials; the report shows it."""
    status: int = Field(default=200, ge=100, le=599)
    """Status code that the answer must have; a redirect counts as an answer."""
    body: Pattern | None = None
    """Pattern that the first 64 KiB of the body must contain."""


class ExecProbe(DocumentModel):
    """A command in a running pod, as `kubectl exec` runs it: an argument list, and never a shell."""

    namespace: str = Field(pattern=PLAN_NAME, max_length=63)
    """Namespace of the pod. The run's account needs `create` and `get` on pods/exec there (deploy/probes)."""
    selector: dict[LabelKey, LabelValue] = Field(min_length=1)
    """Labels of the pod; if several match, the first by name is asked."""
    where: Literal["target", "any"] = "target"
    """Place of the pod: on a `target`, or on `any` node."""
    container: str | None = Field(default=None, pattern=PLAN_NAME, max_length=63)
    """Container; null: the pod's only one."""
    command: Argv
    """Program and its arguments."""
    exit_status: int = Field(default=0, ge=0, le=255)
    """Exit status that the command must end with."""
    output: Pattern | None = None
    """Pattern that the first 64 KiB of its standard and error output must contain."""


class JobProbe(DocumentModel):
    """A job of one pod, which must succeed. It runs without privileges and without an account."""

    command: Argv
    """Program and its arguments."""
    image: str | None = Field(default=None, pattern=r"^[a-z0-9][a-zA-Z0-9._:/@-]*$", max_length=512)
    """Image; null: the cluster profile's `canary_image`."""
    where: Literal["target", "any"] = "any"
    """Place of the pod: on the first `target`, or on `any` node."""
    gpus: int = Field(default=0, ge=0, le=1024)
    """GPUs that the pod asks for."""
    ends_within: Bound = Field(default=timedelta(seconds=60), le=timedelta(minutes=30))
    """Longest time from the job's creation to its success."""


class ExpectedProbe(DocumentModel):
    """A question of the cluster's owners: a query, a request, a command or a job, and when it must hold."""

    name: str = Field(pattern=PLAN_NAME, max_length=30)
    """Name of the probe, which the report shows: lower-case letters, digits and `-`."""
    promql: PromqlProbe | None = None
    """A query to Prometheus."""
    http: HttpProbe | None = None
    """A GET request."""
    exec: ExecProbe | None = None
    """A command in a pod."""
    job: JobProbe | None = None
    """A job of the game-day's own."""
    within: Bound | None = None
    """Longest time from the fault going in until the probe holds. It must not hold before the fault."""
    stays_for: Bound | None = None
    """Time from the fault going in for which the probe must hold whenever it is asked, and before the fault."""
    returns_within: Bound | None = None
    """Longest time from the end of the remediation until the probe holds. It must hold before the fault."""
    every: Duration = Field(default=timedelta(seconds=2), ge=timedelta(seconds=1), le=timedelta(minutes=5))
    """Time between two questions."""
    timeout: Bound = Field(default=timedelta(seconds=5), le=timedelta(seconds=60))
    """Longest time for one answer of a query, a request or a command."""

    @property
    def kind(self) -> str:
        """The kind of question: `promql`, `http`, `exec` or `job`."""
        return next(key for key in _KINDS if getattr(self, key) is not None)

    @property
    def holds_before(self) -> bool:
        """True if the probe must hold before the fault; False if it must not hold."""
        return self.within is None

    @model_validator(mode="after")
    def _check_conflicts(self) -> Self:
        if len([key for key in _KINDS if getattr(self, key) is not None]) != 1:
            raise conflict((), f"give exactly one of {', '.join(_KINDS)}")
        if not (self.within or self.stays_for or self.returns_within):
            raise conflict((), "say when it must hold: within, stays_for or returns_within")
        if self.within and (self.stays_for or self.returns_within):
            raise conflict(
                ("within",),
                "within is for what does not hold before the fault, stays_for and returns_within are for what does: "
                "write two probes",
            )
        return self


_KINDS = ("promql", "http", "exec", "job")


class Probes(Expectation):
    probes: tuple[ExpectedProbe, ...] = Field(default=(), max_length=20)
    """Questions of your own: queries, requests, commands in pods, and jobs (docs/probes.md)."""

    @classmethod
    def bounds(cls, expect: Self) -> Iterator[tuple[Path, timedelta]]:
        for place, probe in enumerate(expect.probes):
            for key, bound in (("within", probe.within), ("stays_for", probe.stays_for)):
                if bound:
                    yield ("probes", place, key), bound

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [probe.name for probe in self.probes]
        if twice := next((index for index, name in enumerate(names) if name in names[:index]), None):
            raise conflict(("probes", twice, "name"), "another probe of this plan has this name")
        return self
