"""A pod's API account on a virtual node: which pods have one, and when its token is renewed."""

from __future__ import annotations

import asyncio
import base64
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from gameday_rehearsal.nodes.api_account import ApiAccount, ApiAddress, token_volume
from gameday_rehearsal.nodes.sandbox import Sandbox
from kubesim.certificates import Authority
from kubesim.client import ApiClient
from kubesim.clock import rfc3339
from kubesim.errors import ApiError
from kubesim.kubeconfig import Kubeconfig, write_kubeconfig

ACCOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
# What the admission plugin ServiceAccount adds to a pod.
VOLUME = {
    "name": "kube-api-access-x7k2p",
    "projected": {
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": 3600, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
        ]
    },
}
CONTAINER = {"name": "agent", "volumeMounts": [{"name": VOLUME["name"], "mountPath": ACCOUNT_PATH}]}
POD: dict[str, Any] = {
    "metadata": {"uid": "u1", "name": "load-1", "namespace": "gameday"},
    "spec": {
        "nodeName": "client-1",
        "serviceAccountName": "gameday-api-client",
        "volumes": [{"name": "state", "emptyDir": {}}, VOLUME],
        "containers": [CONTAINER],
    },
}
START = datetime(2026, 11, 23, 12, tzinfo=UTC)


class TokenServer:
    """An API server that grants numbered tokens, and a clock that stands still until somebody sleeps."""

    def __init__(self, end_after: int) -> None:
        self.now = START
        self.requests: list[tuple[str, dict[str, Any]]] = []
        self.renewed: list[timedelta] = []
        self.refusals = 0
        self._end_after = end_after

    async def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.refusals:
            self.refusals -= 1
            raise ApiError(503, "ServiceUnavailable", "no leader")
        self.requests.append((path, body))
        self.renewed.append(self.now - START)
        ends = self.now + timedelta(seconds=body["spec"]["expirationSeconds"])
        token = f"token-{len(self.requests)}"
        return {"spec": body["spec"], "status": {"token": token, "expirationTimestamp": rfc3339(ends)}}

    async def sleep(self, seconds: float) -> None:
        if len(self.requests) == self._end_after:
            raise asyncio.CancelledError
        self.now += timedelta(seconds=seconds)

    def keep(self, account: ApiAccount) -> None:
        """Provide and keep the account until so many tokens were granted."""

        async def run() -> None:
            await account.provide()
            await account.keep(lambda: self.now, self.sleep)

        with pytest.raises(asyncio.CancelledError):
            asyncio.run(run())


def account_of(pod: dict[str, Any], folder: Path, server: TokenServer) -> ApiAccount:
    return ApiAccount(pod, folder, cast("ApiClient", server), ApiAddress("https://127.0.0.1:6443", "CERTIFICATE"))


def test_a_token_is_renewed_in_place_at_four_fifths_of_its_life(tmp_path: Path) -> None:
    server = TokenServer(end_after=3)
    server.keep(account_of(POD, tmp_path, server))
    assert server.renewed == [timedelta(seconds=seconds) for seconds in (0, 3600 * 0.8, 2 * 3600 * 0.8)]
    assert (tmp_path / "token").read_text() == "token-3"
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600
    assert (tmp_path / "ca.crt").read_text() == "CERTIFICATE"
    assert (tmp_path / "namespace").read_text() == "gameday"


def test_a_token_is_asked_for_the_pods_account_and_bound_to_the_pod(tmp_path: Path) -> None:
    server = TokenServer(end_after=1)
    server.keep(account_of(POD, tmp_path, server))
    ((path, body),) = server.requests
    assert path == "/api/v1/namespaces/gameday/serviceaccounts/gameday-api-client/token"
    assert body["spec"] == {
        "audiences": [],
        "expirationSeconds": 3600,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": "load-1", "uid": "u1"},
    }


def test_a_token_that_cannot_be_renewed_stays_and_is_asked_for_again(tmp_path: Path) -> None:
    server = TokenServer(end_after=2)
    account = account_of(POD, tmp_path, server)

    async def run() -> None:
        await account.provide()
        server.refusals = 3
        await account.keep(lambda: server.now, server.sleep)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(run())
    # Refused at 0.8 of its life, then after pauses of 1, 2 and 4 s: long before it expires.
    assert server.renewed[1] == timedelta(seconds=3600 * 0.8 + 7)
    assert (tmp_path / "token").read_text() == "token-2"


def test_the_files_go_with_the_pod(tmp_path: Path) -> None:
    server = TokenServer(end_after=1)
    account = account_of(POD, tmp_path, server)
    server.keep(account)
    account.remove()
    account.remove()
    assert list(tmp_path.iterdir()) == []


def test_only_a_pod_with_a_token_volume_has_an_account() -> None:
    spec = POD["spec"] | {"volumes": [{"name": "state", "emptyDir": {}}]}
    assert token_volume(POD) == VOLUME
    assert token_volume(POD | {"spec": spec}) is None
    assert token_volume(POD | {"spec": {"containers": []}}) is None


def test_the_mount_path_of_an_account_leads_into_the_pods_folder(tmp_path: Path) -> None:
    found = Sandbox(tmp_path, POD).rewritten(CONTAINER, f"{ACCOUNT_PATH}/token")
    assert found == str(tmp_path / "u1" / "volumes" / VOLUME["name"] / "token")


def test_pods_trust_who_the_nodes_kubeconfig_trusts(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    ca = base64.b64encode(authority.certificate.read_bytes()).decode()
    path = tmp_path / "kubeconfig"
    cluster = {"server": "https://127.0.0.1:6443", "certificate-authority-data": ca}
    write_kubeconfig(path, "nodes", cluster=cluster, user={"token": "t"})
    found = ApiAddress.of(Kubeconfig.load(path))
    assert found.url == "https://127.0.0.1:6443"
    assert found.authority.split() == authority.certificate.read_text().split()
