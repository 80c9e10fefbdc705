"""The Kubernetes API as plain JSON over the official client: node watch, node writes, Events, the checkpoint.

Plain JSON because a Node's typed model costs milliseconds and tens of
kilobytes each, and this controller reads five fields of thousands of them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import urllib3
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from gameday.cluster.kube_transport import load_configuration

MANAGER = "gameday-health"
MERGE_PATCH = "application/merge-patch+json"

_TIMEOUT_S = (3.0, 10.0)
# The server ends a watch after this; a connection that died unnoticed is found a little later by the read time-out.
_WATCH_S = 300
_PAGE = 500
# Parts of a Node that are large and of no use here.
_HEAVY = (
    ("status", "images"),
    ("status", "volumesInUse"),
    ("status", "volumesAttached"),
    ("metadata", "managedFields"),
)


class Api:
    """Requests raise ApiException for the server's refusals and urllib3's HTTPError where it cannot be reached."""

    def __init__(self, kubeconfig: Path | None) -> None:
        """`kubeconfig` None: the pod's own service account. Raises AdapterError."""
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
        query: dict[str, str] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        answer = self._send(method, path, body, query or {}, content_type, _TIMEOUT_S)
        content = answer.read()
        if not 200 <= answer.status < 300:
            raise ApiException(status=answer.status, reason=answer.reason, body=content.decode("utf-8", "replace"))
        found: dict[str, Any] = json.loads(content)
        return found

    def _send(
        self,
        method: str,
        path: str,
        body: dict[str, Any] | None,
        query: dict[str, str],
        content_type: str,
        timeout_s: tuple[float, float],
    ) -> Any:
        """Not by CoreV1Api, whose import alone, with every model of the API, takes longer than all the rest."""
        prepared = self._client.param_serialize(
            method,
            path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json", "Content-Type": content_type},
            body=body,
            auth_settings=["BearerToken"],
        )
        return self._client.call_api(*prepared, _request_timeout=timeout_s)

    def node_source(self) -> Callable[..., Any]:
        """What SharedInformer lists and watches nodes with: pages, plain and light objects."""

        def list_nodes(**options: Any) -> Any:
            """Nodes.

            :return: object
            """
            return self._watch(options) if options.get("watch") else self._list()

        return list_nodes

    def _watch(self, options: dict[str, Any]) -> Any:
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": options.get("resource_version") or "",
            "timeoutSeconds": str(_WATCH_S),
        }
        return self._send("GET", "/api/v1/nodes", None, query, "application/json", (3.0, _WATCH_S + 30.0)).response

    def _list(self) -> SimpleNamespace:
        items: list[dict[str, Any]] = []
        query = {"limit": str(_PAGE)}
        while True:
            page = self.request("GET", "/api/v1/nodes", query=query)
            items += [lighten(node) for node in page.get("items") or []]
            if not page["metadata"].get("continue"):
                break
            query["continue"] = page["metadata"]["continue"]
        version = page["metadata"]["resourceVersion"]
        return SimpleNamespace(items=items, metadata=SimpleNamespace(resource_version=version))


def lighten(node: dict[str, Any]) -> dict[str, Any]:
    """Drop, in place, what makes a Node heavy."""
    for part, field in _HEAVY:
        (node.get(part) or {}).pop(field, None)
    return node


def reason_of(error: Exception) -> str:
    """One line on why a request failed, without its credentials or headers."""
    if not isinstance(error, ApiException):
        return str(getattr(error, "reason", None) or error)[:200]
    try:
        return f"{error.status}: {json.loads(error.body)['message']}"[:300]
    except (ValueError, TypeError, KeyError):
        return f"{error.status}: {error.reason}"[:300]
