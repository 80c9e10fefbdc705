"""Unreachable webhook: a validating admission webhook with an endpoint that refuses every connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Annotated, ClassVar, Literal

from pydantic import BaseModel, Field, model_validator

from gameday.api_clients.connection import tls_context
from gameday.api_clients.exchange import Exchange
from gameday.documents.fields import Duration, conflict
from gameday.errors import HostError
from gameday.faults.base import Evidence
from gameday.host.base import Host
from gameday.plan.fault import FaultParameters
from gameday.values.nodes import NodeRole
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.notes import MeasuredNote
from gameday_control_plane.api_clients.webhook import (
    LEASES,
    NAME,
    WRITE_EVERY_S,
    LeaseThread,
    MatchedWriter,
    Scope,
    WebhookObjects,
    outcomes,
)
from gameday_control_plane.faults.base import ControlPlaneFault, LoadParameters
from gameday_control_plane.values.api_loads import MatchedWrite, WebhookOutage

_SYSTEM_NAMESPACES = ("kube-system", "kube-public", "kube-node-lease")
_WRITES_BEFORE = 6
# An API server reads webhooks from a watch, within a second if it is not busy.
_IN_FORCE_WITHIN_S = 15.0
_OUT_WITHIN_S = 30.0
_ENDS_WITHIN = timedelta(seconds=60)
"""Time besides `runs_for`: until the webhook is in force, for its deletion, and for that of the written objects."""
_Resource = Annotated[str, Field(pattern=r"^(\*|[a-z][a-z0-9-]{0,62}(\.[a-z0-9.-]{1,189})?)$")]
_Namespace = Annotated[str, Field(pattern=r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$")]


class WebhookUnreachableParameters(LoadParameters):
    dangerous: ClassVar[str] = (
        "with failure_policy fail, every write that the webhook matches is refused until it is taken out"
    )
    runs_on: ClassVar[NodeRole] = NodeRole.API_CLIENT
    goes_in_within: ClassVar[timedelta] = timedelta(minutes=1)

    type: Literal["webhook_unreachable"] = "webhook_unreachable"
    failure_policy: Literal["fail", "ignore"] = "fail"
    """`fail`: a write is refused while the webhook cannot be asked. `ignore`: it is admitted."""
    operations: tuple[Literal["create", "update", "delete"], ...] = Field(default=("create", "update"), min_length=1)
    """Operations that are matched; `create` is always one of them."""
    resources: tuple[_Resource, ...] = Field(default=("configmaps",), min_length=1, max_length=20)
    """Resources that are matched, with `.GROUP` outside the core group; `*`: all namespaced resources."""
    namespaces: tuple[_Namespace, ...] = Field(default=("gameday-load",), min_length=1, max_length=20)
    """Namespaces that are matched, by name; gameday-load is always one of them."""
    timeout: Duration = Field(default=timedelta(seconds=10), ge=timedelta(seconds=1), le=timedelta(seconds=30))
    """Time that the API server waits for the webhook, in whole seconds."""
    spares_system: bool = True
    """If true, neither Leases nor anything in kube-system, kube-public and kube-node-lease is matched. False is the
    negative control, which only the lab accepts."""
    runs_for: Duration = Field(default=timedelta(seconds=45), ge=timedelta(seconds=5), le=timedelta(minutes=3))
    """Time that the webhook stays in force."""

    @model_validator(mode="after")
    def _matches_our_writes(self) -> WebhookUnreachableParameters:
        for key, wanted in (("operations", "create"), ("resources", "configmaps"), ("namespaces", NAMESPACE)):
            given = getattr(self, key)
            if wanted not in given and not (key == "resources" and "*" in given):
                raise conflict((key,), f"nothing would measure the webhook: add {wanted}, which our client writes")
        return self

    @model_validator(mode="after")
    def _spares_what_it_says(self) -> WebhookUnreachableParameters:
        if not self.spares_system:
            return self
        for index, namespace in enumerate(self.namespaces):
            if namespace in _SYSTEM_NAMESPACES:
                raise conflict(
                    ("namespaces", index), f"spares_system keeps {namespace} out: leave it out, or set that to false"
                )
        if LEASES in self.resources:
            raise conflict(("resources",), "spares_system keeps Leases out: leave them out, or set that to false")
        return self

    @model_validator(mode="after")
    def _ends_by_itself(self) -> WebhookUnreachableParameters:
        longest = self.runs_for + _ENDS_WITHIN
        if self.hold < longest:
            raise conflict(("hold",), f"putting it in, runs_for and taking it out take {longest.total_seconds():.0f} s")
        if self.timeout.total_seconds() % 1:
            raise conflict(("timeout",), "an API server waits for whole seconds")
        return self

    def why_not_here(self, namespace: str, *, is_lab: bool) -> str:
        if namespace in self.namespaces:
            return f"the webhook would refuse the ledger and the Leases of the game-day itself, in {namespace}"
        if not (self.spares_system or is_lab):
            return "spares_system: false refuses the Leases of nodes, and this cluster is no lab"
        return ""

    @property
    def scope(self) -> Scope:
        """The requests that the webhook matches."""
        return Scope(
            failure_policy=self.failure_policy,
            operations=self.operations,
            resources=self.resources,
            namespaces=self.namespaces,
            timeout_s=int(self.timeout.total_seconds()),
            spares_leases=self.spares_system,
        )


class WebhookUnreachableFault(ControlPlaneFault[WebhookUnreachableParameters]):
    """Puts in a ValidatingWebhookConfiguration with an endpoint that refuses every connection, and takes it out again.

    The endpoint is port 1 of the API server's own loopback. The configuration is named gameday-unreachable; if an
    object of that name already exists, it is left alone and the run stops. Only objects in the plan's namespaces are
    matched, and none without a namespace: no Node, no Namespace, no webhook configuration, so the undo always works. A
    plan cannot name the game-day's own namespace, with its ledger and Leases.

    Twice a second a client of ours creates a small ConfigMap that the webhook matches, six times before it is in and
    then until it is out, and notes whether the server admitted or refused it. Meanwhile the nodes' Leases are listed
    every five seconds, up to 500 of them. At the end of `runs_for` the agent deletes the configuration, and notes how
    long it took until such a write was admitted again.
    """

    parameters: ClassVar[type[FaultParameters]] = WebhookUnreachableParameters
    api_account: ClassVar[str] = "gameday-webhook"
    summary: ClassVar[str] = "An admission webhook without a working endpoint"
    does_not_reach: ClassVar[str] = "reads, objects without a namespace, and writes that the webhook does not match"
    seen_by: ClassVar[tuple[str, ...]] = (
        "the API server's own metrics: apiserver_admission_webhook_rejection_count and _fail_open_count",
        "every client with writes that match",
    )

    def __init__(self) -> None:
        # Keyed by the parameters' identity, because two parts of one compound fault share this instance.
        self._begun: dict[int, _Outage] = {}

    def warnings(self, parameters: WebhookUnreachableParameters) -> tuple[str, ...]:
        fate = "is refused" if parameters.failure_policy == "fail" else "is admitted unchecked"
        spared = " but Leases" if parameters.spares_system and "*" in parameters.resources else ""
        return (
            f"every {' and '.join(parameters.operations)} of {', '.join(parameters.resources)}{spared} in "
            f"{', '.join(parameters.namespaces)} {fate}, for {parameters.runs_for.total_seconds():g} s",
        )

    def prior_state(self, parameters: WebhookUnreachableParameters, gpu: int, host: Host) -> dict[str, str]:
        if WebhookObjects.of(host.api_server()).is_in():
            raise HostError(
                f"validatingwebhookconfiguration {NAME} exists: `gameday reap` undoes the run that left it; else "
                f"kubectl delete validatingwebhookconfiguration {NAME}"
            )
        return {}

    def inject(self, parameters: WebhookUnreachableParameters, gpu: int, host: Host) -> Evidence:
        outage = self._begun[id(parameters)] = _Outage(parameters, host)
        began_at = outage.begin()
        return Evidence(
            lines=(
                f"before: no validatingwebhookconfiguration {NAME}; {_WRITES_BEFORE} writes were admitted",
                f"after: it is in, with failurePolicy {parameters.failure_policy}",
            ),
            written_at=began_at,
        )

    def hold_and_tell(
        self,
        parameters: WebhookUnreachableParameters,
        gpu: int,
        host: Host,
        ended: threading.Event,
        tell: Callable[[BaseModel], None],
    ) -> tuple[str, ...]:
        outage = self._begun[id(parameters)]
        outage.write_until(time.monotonic() + parameters.runs_for.total_seconds(), ended)
        measured = outage.end()
        tell(MeasuredNote(measured=measured))
        lines = (f"writes that it matched: {outcomes(measured.writes)}",)
        if parameters.failure_policy == "ignore":
            return lines
        out = "never" if measured.out_after_s is None else f"{measured.out_after_s:.2f} s after its deletion"
        return (*lines, f"the first such write was admitted again: {out}")

    def undo(
        self, parameters: WebhookUnreachableParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> Evidence:
        self._begun.pop(id(parameters), None)
        objects = WebhookObjects.of(host.api_server())
        was_in = objects.take_out()
        objects.delete_written()
        return Evidence(
            lines=(f"validatingwebhookconfiguration {NAME} {'deleted' if was_in else 'is no longer there'}",)
        )

    def verify_undone(
        self, parameters: WebhookUnreachableParameters, gpu: int, host: Host, undo_state: dict[str, str]
    ) -> bool:
        return not WebhookObjects.of(host.api_server()).is_ours()


class _Outage:
    """The webhook, the client that writes, and their results."""

    def __init__(self, parameters: WebhookUnreachableParameters, host: Host) -> None:
        server = host.api_server()
        self._server = server
        self._parameters = parameters
        self._objects = WebhookObjects.of(server)
        self._writer = MatchedWriter(Exchange(server, tls_context(server)))
        self._before: list[MatchedWrite] = []
        self._writes: list[MatchedWrite] = []

    def begin(self) -> datetime:
        """Write without the webhook, put it in, and return the time when it was in force. Raises HostError."""
        self._before = [self._writer.write() for _ in range(_WRITES_BEFORE)]
        if any(write.outcome != "admitted" for write in self._before):
            raise HostError(f"the same writes do not pass without the webhook: {outcomes(self._before)}")
        self._objects.put_in(self._parameters.scope)
        self.began_at = self._await_in_force() if self._parameters.failure_policy == "fail" else datetime.now(UTC)
        self._leases = LeaseThread(self._server)
        return self.began_at

    def _await_in_force(self) -> datetime:
        """Return the time of the first refused write, or now if none was refused; the checks find admitted writes."""
        deadline = time.monotonic() + _IN_FORCE_WITHIN_S
        while time.monotonic() < deadline:
            write = self._writer.write()
            if write.outcome == "refused":
                return write.sent_at
            time.sleep(WRITE_EVERY_S)
        return datetime.now(UTC)

    def write_until(self, deadline: float, ended: threading.Event) -> None:
        while time.monotonic() < deadline and not ended.wait(WRITE_EVERY_S):
            self._writes.append(self._writer.write())

    def end(self) -> WebhookOutage:
        """Delete the webhook, wait until a write is admitted, and return what was measured. Raises HostError."""
        leases = self._leases.end()
        ended_at, start = datetime.now(UTC), time.monotonic()
        self._objects.take_out()
        return WebhookOutage(
            failure_policy=self._parameters.failure_policy,
            began_at=self.began_at,
            ended_at=ended_at,
            before=tuple(write.seconds for write in self._before),
            writes=tuple(self._writes),
            leases=leases,
            out_after_s=self._await_admitted(start) if self._parameters.failure_policy == "fail" else None,
        )

    def _await_admitted(self, start: float) -> float | None:
        while time.monotonic() < start + _OUT_WITHIN_S:
            if self._writer.write().outcome == "admitted":
                return round(time.monotonic() - start, 3)
            time.sleep(WRITE_EVERY_S / 5)
        return None
