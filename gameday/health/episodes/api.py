"""Requests of the repairer as plain JSON, under a field manager of its own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from gameday.cluster.kube_transport import send
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError

MANAGER = "gameday-repair"
"""The field manager of all writes, and the component of all Events."""
MERGE_PATCH = "application/merge-patch+json"
NOT_FOUND, CONFLICT = 404, 409
_TIMEOUTS_S = (3.0, 10.0)
_LONGEST_MESSAGE = 1024  # the API's own limit on an Event's note


class RepairApi:
    """The API server as the repairer writes it. Methods raise KubernetesError."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self.kubernetes = kubernetes
        self.namespace = kubernetes.profile.namespace

    def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        """Send one request, a PATCH as a merge patch; return the JSON of its answer."""
        write = {} if method == "GET" else {"fieldManager": MANAGER}
        kind = MERGE_PATCH if method == "PATCH" else "application/json"
        with self.kubernetes.explained(f"{method} {path}"):
            answer = send(
                self.kubernetes.api,
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
        """Read an object; return None where there is none."""
        try:
            return self.request("GET", path)
        except KubernetesError as error:
            if error.status == NOT_FOUND:
                return None
            raise

    def node(self, name: str) -> dict[str, Any] | None:
        """Read a node; return None where there is none of that name."""
        return self.get(node_path(name))

    def event(self, node: str, uid: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about a node; one that cannot be written is left out, as the record holds the same."""
        now = datetime.now(UTC)
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"generateName": f"{node[:200]}.", "namespace": "default"},
            "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid},
            "reason": reason,
            "message": message[:_LONGEST_MESSAGE],
            "type": "Warning" if warning else "Normal",
            "count": 1,
            "firstTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "lastTimestamp": f"{now:%Y-%m-%dT%H:%M:%SZ}",
            "eventTime": None,
            "source": {"component": MANAGER, "host": node},
            "reportingComponent": MANAGER,
            "reportingInstance": MANAGER,
        }
        try:
            self.request("POST", "/api/v1/namespaces/default/events", body)
        except KubernetesError:
            return


def node_path(name: str) -> str:
    """Return the URL path of a node."""
    return f"/api/v1/nodes/{quote(name, safe='')}"
