"""The task of the agent that sends the API canary's requests, and its notes."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from gameday.agent.context import Context
from gameday.agent.package_task import PackageTask
from gameday.agent.task import AgentMessage, AgentResult
from gameday.host.privileges import API_CLIENT, PodSecurity
from gameday_control_plane.values.api_requests import ApiCanarySample


class ApiCanaryTask(PackageTask):
    """A task to send small requests to the API server at a fixed beat, until SIGTERM or `duration_s`.

    The answers are `ApiCanaryNote`s. Its Lease carries the run's label, and is deleted at the end.
    """

    security: ClassVar[PodSecurity] = API_CLIENT
    api_account: ClassVar[str | None] = "gameday-api-canary"
    """The account that deploy/control-plane makes."""

    role: Literal["api-canary"] = "api-canary"
    duration_s: float = Field(gt=0, le=86_400)

    def carry_out(self, context: Context) -> AgentResult:
        from gameday_control_plane.agent import api_canary  # noqa: PLC0415 - only in its pod

        return api_canary(self, context)


class ApiCanaryNote(AgentMessage):
    """The note of an API canary's samples of about a second."""

    note: Literal["api-canary"] = "api-canary"
    samples: tuple[ApiCanarySample, ...]
