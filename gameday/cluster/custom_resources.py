"""List and watch any resource, without the official client's methods, which it lacks or which are slow to import."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kubernetes import client

from gameday.cluster.kube_transport import send


def list_call(api: client.ApiClient, api_version: str, plural: str, namespace: str = "") -> Callable[..., Any]:
    """Return a list method for a resource, as `gameday.cluster.watch.Follower` calls it.

    Args:
        api: The client to send it through.
        api_version: Group and version, e.g. `janitor.dgxc.nvidia.com/v1alpha1`; only a version for the core group.
        plural: The resource's plural name, e.g. `rebootnodes`.
        namespace: The only namespace to list; empty: all.
    """
    within = f"namespaces/{namespace}/" if namespace else ""
    path = f"/{'apis' if '/' in api_version else 'api'}/{api_version}/{within}{plural}"

    def call(*, _request_timeout: tuple[float, float] | None = None, _preload_content: bool, **options: Any) -> Any:
        query = {_on_the_wire(name): _text(value) for name, value in options.items()}
        return send(api, "GET", path, query=query, timeouts_s=_request_timeout)

    call.__name__ = f"list_{plural.removesuffix('s')}"
    return call


def field_at(resource: Mapping[str, Any], path: str) -> Any:
    """Return the value at a dotted path, e.g. `spec.nodeName`; None if there is none."""
    found: Any = resource
    for key in path.split("."):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def _on_the_wire(name: str) -> str:
    first, *others = name.removeprefix("_").split("_")
    return first + "".join(map(str.capitalize, others))


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
