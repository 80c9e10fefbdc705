"""How a pod reaches the API server with the account it runs under, on the real and on the virtual host."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host import open_host
from gameday.host.real import RealHost

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
VIRTUAL = {"GAMEDAY_VIRTUAL_HOST": "http://127.0.0.1:1/hosts/client-1"}


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """Return the folder of a pod's account on a machine whose file system is at tmp_path."""
    folder = tmp_path / "var/run/secrets/kubernetes.io/serviceaccount"
    folder.mkdir(parents=True)
    for name in ("token", "ca.crt", "namespace"):
        (folder / name).write_text(name)
    return folder


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("10.96.0.1", "https://10.96.0.1:443"),
        ("fd00:10:96::1", "https://[fd00:10:96::1]:443"),
        ("kubernetes.default.svc", "https://kubernetes.default.svc:443"),
    ],
)
def test_a_pod_of_a_cluster_finds_its_account_and_the_server(
    tmp_path: Path, account: Path, host: str, url: str
) -> None:
    found = RealHost(tmp_path, IN_CLUSTER | {"KUBERNETES_SERVICE_HOST": host}).api_server()
    assert (found.url, found.ca_file, found.token_file) == (url, account / "ca.crt", account / "token")


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_a_pod_without_an_account_says_what_it_lacks(tmp_path: Path, account: Path, missing: str) -> None:
    (account / missing).unlink()
    with pytest.raises(HostError, match=rf"no API account: .*/{missing} is missing; .*automountServiceAccountToken"):
        RealHost(tmp_path, IN_CLUSTER).api_server()


def test_a_process_outside_of_a_cluster_says_so(tmp_path: Path, account: Path) -> None:
    with pytest.raises(HostError, match="KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set"):
        RealHost(tmp_path, {}).api_server()


def test_a_pod_of_a_virtual_node_uses_what_its_kubelet_gave_it(account: Path) -> None:
    url = "https://127.0.0.1:6443"
    given = VIRTUAL | {"GAMEDAY_API_SERVER": url, "GAMEDAY_API_ACCOUNT": str(account)}
    found = open_host(given).api_server()
    assert (found.url, found.ca_file, found.token_file) == (url, account / "ca.crt", account / "token")


def test_a_pod_of_a_virtual_node_without_an_account_says_so() -> None:
    with pytest.raises(HostError, match=r"gave this pod no API account; .*automountServiceAccountToken"):
        open_host(VIRTUAL).api_server()
