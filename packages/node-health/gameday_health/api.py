"""The controller's way to the API server, as plain JSON for speed (`gameday.cluster.json_api` has the figure)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import urllib3
from kubernetes import client

from gameday.cluster.json_api import JsonApi
from gameday.cluster.kubeconfig import load_configuration
from gameday_health.model import MANAGER

EVENTS = "/api/v1/namespaces/default/events"
"""The namespace of Events about objects without one, as client-go's EventSinkImpl writes them."""

TIMEOUTS_S = (3.0, 10.0)
"""To connect, and to wait for the next byte. Short, because a write that does not get through is soon tried again."""


def connect(kubeconfig: Path | None, namespace: str, before_write: Callable[[], None] = lambda: None) -> JsonApi:
    """Return a way that never retries: its user decides what to try again, and when.

    Args:
        kubeconfig: None for the pod's own service account.
        namespace: Namespace of the checkpoint and the Lease.
        before_write: Called before every request that changes something; raises if this process must not write.

    Raises:
        AdapterError: No configuration can be loaded.
    """
    configuration = load_configuration(kubeconfig, None, in_cluster=kubeconfig is None)
    configuration.retries = urllib3.Retry(0)
    api_client = client.ApiClient(configuration)
    api_client.user_agent = MANAGER
    return JsonApi(api_client, namespace, MANAGER, TIMEOUTS_S, before_write)
