"""The Kubernetes API as plain JSON: without the official client's models, whose import and decoding cost more than it.

A Node's model takes milliseconds and tens of kilobytes; a program that follows thousands of nodes reads five fields.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client

from gameday.cluster.kube_errors import explained
from gameday.cluster.kube_transport import send
from gameday.errors import KubernetesError

MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT = 404, 409


class JsonApi:
    """Requests to the API server; a PATCH is a merge patch. Methods raise KubernetesError."""

    def __init__(
        self,
        api_client: client.ApiClient,
        namespace: str,
        manager: str,
        timeouts_s: tuple[float, float] | None = None,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare requests.

        Args:
            api_client: The client that sends them.
            namespace: Namespace of the objects that this process keeps in the cluster.
            manager: The field manager of all writes.
            timeouts_s: Seconds to connect and to wait for the next byte; None for the client's own.
            before_write: Called before every request that changes something; raises if this process must not write.
        """
        self.client = api_client
        self.namespace = namespace
        self.server: str = api_client.configuration.host
        self._manager = manager
        self._timeouts_s = timeouts_s
        self._before_write = before_write

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        act: str = "",
    ) -> dict[str, Any]:
        """Send one request; return its answer's JSON.

        Args:
            method: The HTTP verb.
            path: The URL's path, quoted.
            body: Sent as JSON.
            query: Parameters by their names on the wire.
            act: The request in words, for an error; empty: method and path.
        """
        if method != "GET":
            self._before_write()
        write = {} if method == "GET" else {"fieldManager": self._manager}
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        with explained(self.server, act or f"{method} {path}"):
            answer = send(
                self.client,
                method,
                path,
                query={**write, **(query or {})},
                headers={"Content-Type": kind},
                body=body,
                timeouts_s=self._timeouts_s,
            )
            found: dict[str, Any] = json.loads(answer.data)
            return found

    def get(self, path: str, act: str = "") -> dict[str, Any] | None:
        """Read an object; return None if it does not exist."""
        try:
            return self.request("GET", path, act=act)
        except KubernetesError as error:
            if error.status == NOT_FOUND:
                return None
            raise
