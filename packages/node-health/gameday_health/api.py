"""The Kubernetes API as plain JSON over the official client: node watch, node writes, Events, checkpoint, claims.

Plain JSON because a Node's typed model costs milliseconds and tens of kilobytes each, and this controller reads five
fields of thousands of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from gameday.cluster.kube_errors import explained
from gameday.cluster.kube_transport import send
from gameday.cluster.kubeconfig import load_configuration
from gameday.errors import KubernetesError
from gameday_health.model import MANAGER

MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT = 404, 409
EVENTS = "/api/v1/namespaces/default/events"
"""The namespace of Events about objects without one, as client-go's EventSinkImpl writes them."""

# To connect, and to wait for the next byte. Short, because a quarantine that does not get through is soon tried again.
_TIMEOUTS_S = (3.0, 10.0)


def connect_without_retries(kubeconfig: Path | None) -> client.ApiClient:
    """Return a client that never retries: its user decides what to try again, and when.

    Args:
        kubeconfig: None for the pod's own service account.

    Raises:
        AdapterError: No configuration can be loaded.
    """
    configuration = load_configuration(kubeconfig, None, in_cluster=kubeconfig is None)
    configuration.retries = urllib3.Retry(0)
    api_client = client.ApiClient(configuration)
    api_client.user_agent = MANAGER
    return api_client


class Api:
    """Requests to the API server. They raise ApiException for a refusal, and urllib3's HTTPError without an answer."""

    def __init__(self, kubeconfig: Path | None, before_write: Callable[[], None] = lambda: None) -> None:
        """Prepare a client.

        Args:
            kubeconfig: None for the pod's own service account.
            before_write: Called before every request that changes something; raises if this process must not write.

        Raises:
            AdapterError: No configuration can be loaded.
        """
        self._client = connect_without_retries(kubeconfig)
        self._before_write = before_write
        self.server: str = self._client.configuration.host

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send one request; return its answer's JSON."""
        if method != "GET":
            self._before_write()
        headers = {"Content-Type": content_type}
        answer = send(self._client, method, path, query=query, headers=headers, body=body, timeouts_s=_TIMEOUTS_S)
        found: dict[str, Any] = json.loads(answer.data)
        return found

    def list_node(
        self,
        *,
        _request_timeout: tuple[float, float] = _TIMEOUTS_S,
        _preload_content: bool = False,
        **options: Any,
    ) -> Any:
        """Return a list or a watch of nodes, undecoded: the list call of a `Follower`.

        CoreV1Api has the same, but importing it, with every model of the API, takes longer than everything else.
        """
        query = {_wire_name(name): _wire_value(value) for name, value in options.items()}
        return send(self._client, "GET", "/api/v1/nodes", query=query, timeouts_s=_request_timeout)

    def list_event(
        self,
        *,
        _request_timeout: tuple[float, float] = _TIMEOUTS_S,
        _preload_content: bool = False,
        **options: Any,
    ) -> Any:
        """Return a list or a watch of Events about objects without a namespace, undecoded: a call for `Follower`."""
        query = {_wire_name(name): _wire_value(value) for name, value in options.items()}
        return send(self._client, "GET", EVENTS, query=query, timeouts_s=_request_timeout)


class ExplainedApi:
    """Requests to the API server; a PATCH is a merge patch. Methods raise KubernetesError."""

    def __init__(self, api_client: client.ApiClient, namespace: str, manager: str) -> None:
        """Prepare requests.

        Args:
            api_client: The client that sends them.
            namespace: Namespace of the objects that this process keeps in the cluster.
            manager: The field manager of all writes.
        """
        self.namespace = namespace
        self._client = api_client
        self._manager = manager

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send one request; return its answer's JSON."""
        write = {} if method == "GET" else {"fieldManager": self._manager}
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        with explained(self._client.configuration.host, f"{method} {path}"):
            answer = send(
                self._client,
                method,
                path,
                query={**write, **(query or {})},
                headers={"Content-Type": kind},
                body=body,
                timeouts_s=_TIMEOUTS_S,
            )
            found: dict[str, Any] = json.loads(answer.data)
            return found

    def get(self, path: str) -> dict[str, Any] | None:
        """Read an object; return None if it does not exist."""
        try:
            return self.request("GET", path)
        except KubernetesError as error:
            if error.status == NOT_FOUND:
                return None
            raise


def _wire_name(option: str) -> str:
    """Return `resource_version` as `resourceVersion`, and `_continue` as `continue`."""
    first, *others = option.strip("_").split("_")
    return first + "".join(map(str.title, others))


def _wire_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
