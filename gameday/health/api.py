"""The Kubernetes API as plain JSON over the official client: node watch, node writes, Events, the checkpoint.

Plain JSON because a Node's typed model costs milliseconds and tens of kilobytes each, and this controller reads five
fields of thousands of them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import urllib3
from kubernetes import client

from gameday.cluster.kube_transport import load_configuration, send

MANAGER = "gameday-health"
MERGE_PATCH = "application/merge-patch+json"
EVENTS = "/api/v1/namespaces/default/events"
"""Events of objects without a namespace live here (client-go's EventSinkImpl writes them so)."""

# To connect, and to wait for the next byte: a quarantine that does not get through is tried again soon.
_TIMEOUTS_S = (3.0, 10.0)


class Api:
    """Requests to the API server; they raise ApiException for refusals and urllib3's HTTPError without an answer."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """Prepare a client.

        Args:
            kubeconfig: None for the pod's own service account.

        Raises:
            AdapterError: No configuration can be loaded.
        """
        configuration = load_configuration(kubeconfig, None, in_cluster=kubeconfig is None)
        # The worker decides itself what is tried again, and when.
        configuration.retries = urllib3.Retry(0)
        self._client = client.ApiClient(configuration)
        self._client.user_agent = MANAGER
        self.server: str = configuration.host

    def request(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Send one request; return the JSON of its answer."""
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
        """Return a list or a watch of nodes, unread: a list call for `Follower`.

        CoreV1Api has the same, but its import, with every model of the API, takes longer than all the rest.
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
        """Return a list or a watch of the Events about objects without a namespace, unread: a call for `Follower`."""
        query = {_wire_name(name): _wire_value(value) for name, value in options.items()}
        return send(self._client, "GET", EVENTS, query=query, timeouts_s=_request_timeout)


def _wire_name(option: str) -> str:
    """Return `resource_version` as `resourceVersion`, and `_continue` as `continue`."""
    first, *others = option.strip("_").split("_")
    return first + "".join(map(str.title, others))


def _wire_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
