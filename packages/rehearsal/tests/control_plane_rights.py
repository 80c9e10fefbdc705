"""The rights of load generators and API canaries, asked of an API server with the token of each account."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

CLIENT, CANARY = "gameday-api-client", "gameday-api-canary"
_LOAD = "/api/v1/namespaces/gameday-load"
_LEASES = "/apis/coordination.k8s.io/v1/namespaces/gameday-load/leases"
_FLOW_SCHEMAS = "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas"
_MASTER = {"Impersonate-User": "gameday-master", "Impersonate-Group": "system:masters"}
Headers = dict[str, str]


def _object(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"load": name}}}


# (method, path, body, more headers, expected status), in this order.
ASKED: dict[str, list[tuple[str, str, dict[str, Any] | None, Headers, int]]] = {
    CLIENT: [
        ("POST", f"{_LOAD}/secrets", _object("s"), {}, 201),
        ("GET", f"{_LOAD}/secrets", None, {}, 200),
        ("GET", f"{_LOAD}/secrets?watch=true&timeoutSeconds=1", None, {}, 200),
        ("DELETE", f"{_LOAD}/secrets?labelSelector=load%3Ds", None, {}, 200),
        ("POST", f"{_LOAD}/configmaps", _object("c"), {}, 201),
        ("GET", f"{_LOAD}/configmaps/c", None, {}, 200),
        ("DELETE", f"{_LOAD}/configmaps/c", None, {}, 200),
        ("GET", "/api/v1/namespaces/gameday/secrets", None, {}, 403),
        ("GET", "/api/v1/secrets", None, {}, 403),
        ("GET", "/api/v1/namespaces/gameday/configmaps", None, {}, 403),
        ("POST", f"{_LOAD}/services", _object("p"), {}, 403),
        ("POST", _LEASES, _object("l"), {}, 403),
        ("GET", _FLOW_SCHEMAS, None, {}, 403),
        ("GET", f"{_LOAD}/secrets", None, _MASTER, 200),
        ("GET", f"{_LOAD}/secrets", None, {"Impersonate-User": "gameday-admin"}, 403),
    ],
    CANARY: [
        ("GET", "/readyz", None, {}, 200),
        ("GET", f"{_LOAD}/configmaps/gameday-api-canary", None, {}, 200),
        ("GET", f"{_LOAD}/configmaps?limit=1", None, {}, 200),
        ("POST", _LEASES, _object("canary"), {}, 201),
        ("GET", f"{_LEASES}/canary", None, {}, 200),
        ("POST", f"{_LOAD}/configmaps", _object("c"), {}, 403),
        ("GET", f"{_LOAD}/secrets", None, {}, 403),
        ("DELETE", f"{_LEASES}/canary", None, {}, 200),
        ("GET", "/api/v1/namespaces/gameday/configmaps", None, {}, 403),
        ("GET", f"{_LOAD}/configmaps", None, _MASTER, 403),
    ],
}


def answers(http: httpx.Client, account: str) -> list[tuple[str, str, int]]:
    """Ask everything of ASKED, and return what was asked with the status of each answer."""
    found = []
    for method, path, body, headers, _ in ASKED[account]:
        found.append((method, path, http.request(method, path, json=body, headers=headers).status_code))
    return found


def expected(account: str) -> list[tuple[str, str, int]]:
    return [(method, path, status) for method, path, _, _, status in ASKED[account]]


@contextmanager
def client_with(url: str, ca_file: Path, token_file: Path) -> Iterator[httpx.Client]:
    """Speak to an API server as a pod does, with what `Host.api_server` tells it."""
    tls = ssl.create_default_context(cafile=ca_file)
    headers = {"Authorization": f"Bearer {token_file.read_text()}"}
    with httpx.Client(base_url=url, verify=tls, headers=headers, trust_env=False, timeout=30) as http:
        yield http
