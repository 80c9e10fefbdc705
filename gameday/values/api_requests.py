"""Requests to the API server as our own clients measured them: the API canary's samples, and the load's requests."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

CanaryCall = Literal["readyz", "get", "put", "list"]
"""The API canary's calls: /readyz, GET a ConfigMap, PUT a Lease, LIST one object."""


class ApiRequest(BaseModel):
    """A request that one of our clients sent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sent_at: AwareDatetime
    seconds: float = Field(ge=0, description="from sending until the last byte, the failure or the client's timeout")
    status: int | None = Field(default=None, description="HTTP status; None where no answer came")
    error: str = Field(default="", max_length=200, description="why there is no answer, or no whole one")

    @property
    def ok(self) -> bool:
        """The server answered as it should."""
        return self.status is not None and self.status < 300 and not self.error


class CanarySample(ApiRequest):
    """A request of the API canary."""

    call: CanaryCall


class LoadRequest(ApiRequest):
    """A request of a load generator."""

    client: int = Field(ge=0, description="the simulated client's number")
    first_byte_s: float | None = Field(
        default=None, ge=0, description="from sending until the first byte of the answer; None where none came"
    )
    bytes: int = Field(default=0, ge=0, description="bytes of the answer's body, as they came over the wire")
    level: str = Field(default="", description="UID of the priority level that the server names in its answer")
