"""The repairer's requests as plain JSON, under a field manager of its own."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

from gameday.cluster.json_api import JsonApi
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday_health.api import TIMEOUTS_S

MANAGER = "gameday-repair"
"""The field manager of all writes, and the component of all Events."""
_LONGEST_MESSAGE = 1024  # the API's own limit on an Event's note


class RepairApi(JsonApi):
    """The API server as the repairer uses it. Methods raise KubernetesError."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        super().__init__(kubernetes.api, kubernetes.profile.namespace, MANAGER, TIMEOUTS_S)

    def node(self, name: str) -> dict[str, Any] | None:
        """Read a node; return None if it does not exist."""
        return self.get(node_path(name))

    def event(self, node: str, uid: str, reason: str, message: str, *, warning: bool = False) -> None:
        """Write an Event about a node. If it cannot be written it is left out, because the record holds the same."""
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
