"""An admission webhook without an endpoint, and the writes and Leases that show how far its effect reaches."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, Protocol

import orjson

from gameday.api_clients.connection import tls_context
from gameday.api_clients.exchange import Exchange, Failed
from gameday.errors import HostError
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import LOAD_LABEL, NAMESPACE
from gameday_control_plane.api_clients.objects import load_object
from gameday_control_plane.values.api_loads import MatchedWrite, NodeLeases, WriteOutcome

NAME = "gameday-unreachable"
"""Name of the ValidatingWebhookConfiguration, the only one that the agent's account may delete."""
LOAD = "webhook-unreachable"
"""The load's name: the value of its objects' label, and the beginning of their names."""
LEASES = "leases.coordination.k8s.io"
WRITE_EVERY_S = 0.5
_WEBHOOK = "unreachable.gameday.dev"
_CONFIGURATIONS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
_CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
_NODE_LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_METADATA = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
# Port 1 (tcpmux) on the API server's own loopback: nothing listens there, and no packet leaves the machine.
_REFUSES = "https://127.0.0.1:1/"
_NO_LEASES = "!(request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases')"
_MOST_NODES = 500
_LEASES_EVERY_S = 5.0
_NOT_FOUND = 404
_END_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Scope:
    """The requests that the webhook matches, and what happens to them."""

    failure_policy: Literal["fail", "ignore"]
    operations: tuple[str, ...]
    resources: tuple[str, ...]
    """Plurals, with `.GROUP` outside the core group; `*` for all."""
    namespaces: tuple[str, ...]
    timeout_s: int
    spares_leases: bool


class Asks(Protocol):
    """The part of an Exchange that is used here."""

    def ask(
        self, method: str, path: str, *, query: dict[str, str] = ..., accept: str = ..., body: bytes | None = ...
    ) -> bytes: ...


def manifest(scope: Scope) -> dict[str, Any]:
    """Return the webhook's configuration, which matches nothing without a namespace.

    docs/sources.md, Admission webhooks, has the limit that each key sets.
    """
    webhook: dict[str, Any] = {
        "name": _WEBHOOK,
        "clientConfig": {"url": _REFUSES},
        "rules": [
            {
                "operations": [operation.upper() for operation in scope.operations],
                "apiGroups": [group],
                "apiVersions": ["*"],
                "resources": [plural],
                "scope": "Namespaced",
            }
            for plural, group in map(_split, scope.resources)
        ],
        "failurePolicy": scope.failure_policy.capitalize(),
        "namespaceSelector": {
            "matchExpressions": [
                {"key": "kubernetes.io/metadata.name", "operator": "In", "values": list(scope.namespaces)}
            ]
        },
        "sideEffects": "None",
        "timeoutSeconds": scope.timeout_s,
        "admissionReviewVersions": ["v1"],
    }
    if scope.spares_leases:
        webhook["matchConditions"] = [{"name": "no-leases", "expression": _NO_LEASES}]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": NAME, "labels": {LOAD_LABEL: LOAD}},
        "webhooks": [webhook],
    }


class WebhookObjects:
    """The webhook's configuration, and the ConfigMaps of the client that writes. Methods raise HostError."""

    def __init__(self, api: Asks) -> None:
        self._api = api

    @classmethod
    def of(cls, server: ApiServer) -> WebhookObjects:
        """Return them, on a connection of their own."""
        return cls(Exchange(server, tls_context(server)))

    def put_in(self, scope: Scope) -> None:
        """Create the configuration, and read back that the server keeps every key that narrows it."""
        wanted = manifest(scope)
        self._ask("POST", _CONFIGURATIONS, body=orjson.dumps(wanted))
        (kept,) = orjson.loads(self._ask("GET", f"{_CONFIGURATIONS}/{NAME}"))["webhooks"]
        for key in ("namespaceSelector", "matchConditions"):
            if kept.get(key) != wanted["webhooks"][0].get(key):
                self.take_out()
                raise HostError(f"the API server did not keep the webhook's {key}: Kubernetes 1.30 or newer does")

    def is_in(self) -> bool:
        """Return True if a configuration of this name exists, ours or not."""
        return self._found() is not None

    def is_ours(self) -> bool:
        """Return True if the configuration exists and a run of this fault made it."""
        found = self._found()
        return found is not None and found["metadata"].get("labels", {}).get(LOAD_LABEL) == LOAD

    def take_out(self) -> bool:
        """Delete the configuration if it is ours; return True if it was there."""
        if not self.is_ours():
            return False
        self._ask("DELETE", f"{_CONFIGURATIONS}/{NAME}")
        return True

    def delete_written(self) -> None:
        """Delete the written ConfigMaps."""
        self._ask("DELETE", _CONFIG_MAPS, query={"labelSelector": f"{LOAD_LABEL}={LOAD}"})

    def _found(self) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = orjson.loads(self._api.ask("GET", f"{_CONFIGURATIONS}/{NAME}"))
        except Failed as error:
            if error.status == _NOT_FOUND:
                return None
            raise HostError(f"GET {_CONFIGURATIONS}/{NAME}: {error}") from None
        return found

    def _ask(self, method: str, path: str, **more: Any) -> bytes:
        try:
            return self._api.ask(method, path, **more)
        except Failed as error:
            raise HostError(f"{method} {path}: {error}") from None


class MatchedWriter:
    """A client that creates small ConfigMaps one after the other, which the webhook matches."""

    def __init__(self, api: Asks) -> None:
        self._api = api
        self._written = 0

    def write(self) -> MatchedWrite:
        """Create one; return the outcome."""
        body = load_object("configmaps", LOAD, self._written, 16)
        self._written += 1
        sent_at, start = datetime.now(UTC), time.monotonic()
        outcome: WriteOutcome = "admitted"
        try:
            self._api.ask("POST", _CONFIG_MAPS, body=body)
        except Failed as error:
            asked = "failed calling webhook" in str(error) and _WEBHOOK in str(error)
            outcome = "refused" if asked else "failed"
        return MatchedWrite(sent_at=sent_at, seconds=round(time.monotonic() - start, 6), outcome=outcome)


class LeaseWatcher:
    """Looks at the nodes' Leases every few seconds, to see how long each stays unchanged."""

    def __init__(self, api: Asks) -> None:
        self._api = api
        self._seen: dict[str, tuple[str, float]] = {}
        self._longest = (0.0, "")
        self._failed = False

    def run(self, ended: threading.Event) -> None:
        """Look until `ended` is set."""
        while True:
            self.look(time.monotonic())
            if ended.wait(_LEASES_EVERY_S):
                break
        self.look(time.monotonic())

    def look(self, now: float) -> None:
        """List the Leases once, at this moment of the monotonic clock."""
        try:
            page = orjson.loads(self._api.ask("GET", _NODE_LEASES, query={"limit": str(_MOST_NODES)}, accept=_METADATA))
            versions = {one["metadata"]["name"]: one["metadata"]["resourceVersion"] for one in page["items"] or ()}
        except (Failed, ValueError, KeyError, TypeError):
            self._failed = True
            return
        for node, version in versions.items():
            known, since = self._seen.get(node, ("", now))
            self._longest = max(self._longest, (now - since, node))
            if version != known:
                self._seen[node] = (version, now)

    @property
    def found(self) -> NodeLeases | None:
        """The renewals; None if a LIST failed, or if there was no Lease."""
        if self._failed or not self._seen:
            return None
        return NodeLeases(nodes=len(self._seen), longest_s=round(self._longest[0], 3), node=self._longest[1])


class LeaseThread:
    """A LeaseWatcher in a thread of its own, with a connection of its own."""

    def __init__(self, server: ApiServer) -> None:
        """Begin to look. Raises HostError if the API server's authority cannot be read."""
        self._exchange = Exchange(server, tls_context(server))
        self._watcher = LeaseWatcher(self._exchange)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watcher.run, args=(self._ended,), daemon=True)
        self._thread.start()

    def end(self) -> NodeLeases | None:
        """Look for the last time, and return what was seen."""
        self._ended.set()
        self._thread.join(_END_TIMEOUT_S)
        self._exchange.end()
        return self._watcher.found


def outcomes(writes: Sequence[MatchedWrite]) -> str:
    """Return the number of writes with each outcome, for people."""
    names = dict.fromkeys(write.outcome for write in writes)
    return ", ".join(f"{sum(one.outcome == name for one in writes)} {name}" for name in names) or "none"


def _split(resource: str) -> tuple[str, str]:
    """Return a resource's plural and API group; `*` means all of both."""
    plural, _, group = resource.partition(".")
    return (plural, group) if plural != "*" else ("*", "*")
