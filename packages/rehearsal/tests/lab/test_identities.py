"""Who is who in the lab, asked of the server itself, and what the files of an earlier or a killed start do to it."""

from __future__ import annotations

import ssl
import stat
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from prometheus_client.parser import text_string_to_metric_families

from gameday.observe.api_server_metrics import (
    API_SERVER_METRICS,
    CONTROLLER_METRICS,
    ETCD_METRICS,
    SCHEDULER_METRICS,
)
from gameday_rehearsal.lab.identities import (
    ADMINS,
    KUBECONFIGS,
    NODES_USER,
    TOPOLOGY_USER,
    first_bindings,
    make_secrets,
)
from gameday_rehearsal.lab.status import ready_urls
from kubesim.certificates import Authority
from kubesim.kubeconfig import Kubeconfig
from tests.rehearsal.lab.plane import Plane
from tests.rehearsal.processes import until

_STOCK = {
    "admin": ("gameday-admin", {ADMINS}),
    "controller-manager": ("system:kube-controller-manager", set[str]()),
    "scheduler": ("system:kube-scheduler", set[str]()),
    "topology-scheduler": (TOPOLOGY_USER, {"system:serviceaccounts", "system:serviceaccounts:kube-system"}),
    "nodes": (NODES_USER, {"system:nodes"}),
    "prometheus": ("gameday:prometheus", {"system:monitoring"}),
}


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_no_certificate_on_disk_is_a_masters(tmp_path: Path) -> None:
    make_secrets(tmp_path)
    for path in tmp_path.glob("*.crt"):
        groups = _certificate(path).subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        assert "system:masters" not in [group.value for group in groups], path.name


def test_a_certificate_made_in_memory_touches_no_file(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "ca")
    before = set(tmp_path.iterdir())
    assert b"PRIVATE KEY" in authority.client_in_memory("somebody", ("system:masters",))
    assert set(tmp_path.iterdir()) == before


def test_only_etcds_server_certificate_is_good_for_a_client_too(tmp_path: Path) -> None:
    secrets = make_secrets(tmp_path)
    both = []
    for pair in (secrets.etcd, secrets.apiserver, secrets.controller_manager, secrets.scheduler, secrets.kubelet):
        usages = _certificate(pair.certificate).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        if ExtendedKeyUsageOID.CLIENT_AUTH in usages:
            both.append(pair)
    assert both == [secrets.etcd]


def test_keys_are_their_owners_alone_even_in_a_folder_that_was_open(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    make_secrets(tmp_path)
    assert _mode(tmp_path) == 0o700
    assert {_mode(path) for path in tmp_path.glob("*.key")} == {0o600}


def test_a_second_start_keeps_the_authorities_and_the_token_key(tmp_path: Path) -> None:
    names = ("ca.crt", "etcd-ca.crt", "front-proxy-ca.crt", "service-accounts.key", "service-accounts.pub")
    make_secrets(tmp_path)
    before = {name: (tmp_path / name).read_bytes() for name in names}
    make_secrets(tmp_path)
    assert {name: (tmp_path / name).read_bytes() for name in names} == before


@pytest.mark.parametrize("name", ["ca.key", "ca.crt", "service-accounts.key", "kubelet.crt", "kube-apiserver.key"])
@pytest.mark.parametrize("damage", ["emptied", "cut", "gone", "another's"])
def test_a_half_written_file_is_made_anew(tmp_path: Path, name: str, damage: str) -> None:
    make_secrets(tmp_path)
    path = tmp_path / name
    match damage:
        case "emptied":
            path.write_bytes(b"")
        case "cut":
            path.write_bytes(path.read_bytes()[:90])
        case "gone":
            path.unlink()
        case "another's":
            path.write_bytes((tmp_path / f"etcd-ca{path.suffix}").read_bytes())
    secrets = make_secrets(tmp_path)
    own = _certificate(secrets.ca.certificate)
    for pair in (secrets.apiserver, secrets.kubelet, secrets.controller_manager):
        _certificate(pair.certificate).verify_directly_issued_by(own)
        ssl.create_default_context(cafile=str(secrets.ca.certificate)).load_cert_chain(pair.certificate, pair.key)


def test_the_first_bindings_give_no_secrets_to_anybody_but_the_administrators() -> None:
    rules = [rule for _, body in first_bindings() for rule in body.get("rules", ())]
    assert rules
    for rule in rules:
        assert not {"*", "secrets"} & set(rule["resources"])
        assert not {"*", "escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])


@pytest.mark.lab
@pytest.mark.parametrize("name", sorted(KUBECONFIGS))
def test_each_is_authenticated_as_its_stock_user_and_none_as_a_master(plane: Plane, name: str) -> None:
    who = _whoami(plane.folder / f"{name}.kubeconfig")
    user, groups = _STOCK[name]
    assert who["username"] == user
    assert set(who["groups"]) == groups | {"system:authenticated"}


@pytest.mark.lab
def test_the_running_components_are_those_users(plane: Plane) -> None:
    components = plane.components()
    for component, name in (("kube-controller-manager", "controller-manager"), ("kube-scheduler", "scheduler")):
        command = Path(f"/proc/{components[component]['pid']}/cmdline").read_bytes().decode().split("\0")
        assert f"--kubeconfig={plane.folder / name}.kubeconfig" in command
    account = ("get", "serviceaccount", "-n", "kube-system", "job-controller", "-o", "name")
    until(lambda: plane.kubectl(*account, check=False), 30, "the controllers have accounts of their own")


@pytest.mark.lab
def test_anonymous_sees_health_and_version_and_no_pods(plane: Plane) -> None:
    with httpx.Client(base_url=plane.url, verify=_tls(plane), trust_env=False) as http:
        assert http.get("/readyz").status_code == 200
        assert http.get("/version").status_code == 200
        refused = http.get("/api/v1/pods")
    assert refused.status_code == 403
    assert 'User "system:anonymous" cannot list resource "pods"' in refused.json()["message"]


@pytest.mark.lab
@pytest.mark.parametrize(
    ("verb", "resource"),
    [
        ("get", "secrets"),
        ("create", "pods"),
        ("delete", "nodes"),
        ("patch", "clusterroles"),
        ("create", "pods/eviction"),
    ],
)
def test_the_virtual_nodes_may_not(plane: Plane, verb: str, resource: str) -> None:
    assert plane.kubectl("auth", "can-i", verb, resource, "-A", "--as", NODES_USER, check=False).strip() == "no"


@pytest.mark.lab
def test_etcd_refuses_who_shows_no_certificate_of_its_own_authority(plane: Plane) -> None:
    (url,) = [flag.split("=")[1] for flag in _command(plane, "etcd") if flag.startswith("--listen-client-urls=")]
    stranger = ssl.create_default_context(cafile=str(plane.folder / "etcd-ca.crt"))
    other = ssl.create_default_context(cafile=str(plane.folder / "etcd-ca.crt"))
    other.load_cert_chain(plane.folder / "admin-client.crt", plane.folder / "admin-client.key")
    known = ssl.create_default_context(cafile=str(plane.folder / "etcd-ca.crt"))
    known.load_cert_chain(plane.folder / "apiserver-etcd-client.crt", plane.folder / "apiserver-etcd-client.key")
    assert httpx.get(f"{url}/version", verify=known, trust_env=False).json()["etcdserver"].startswith("3.")
    for tls in (stranger, other):
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/version", verify=tls, trust_env=False)


_PAGES = {
    "etcd": ETCD_METRICS,
    "kube-apiserver": API_SERVER_METRICS,
    "kube-controller-manager": CONTROLLER_METRICS,
    "kube-scheduler": SCHEDULER_METRICS,
}


@pytest.mark.lab
@pytest.mark.parametrize("component", _PAGES)
def test_prometheus_reads_every_series_that_the_project_knows_and_nothing_of_the_api(
    plane: Plane, component: str
) -> None:
    """Every metric has to be there, but for those that a server shows only after some use."""
    tls = _tls(plane)
    tls.load_cert_chain(plane.folder / "prometheus-client.crt", plane.folder / "prometheus-client.key")
    page = urljoin(ready_urls(plane.folder)[component], "/metrics")
    with httpx.Client(base_url=plane.url, verify=tls, trust_env=False) as http:
        assert http.get("/api/v1/namespaces/default/configmaps").status_code == 403
        families = {family.name: family for family in text_string_to_metric_families(http.get(page).text)}
    for metric in _PAGES[component]:
        found = families.get(metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name)
        assert found or metric.after, metric.name
        if found:
            assert found.type == metric.kind
            assert set(metric.labels) <= {label for sample in found.samples for label in sample.labels}


@pytest.mark.lab
def test_files_of_a_running_lab_are_its_owners_alone(plane: Plane) -> None:
    assert _mode(plane.folder) == 0o700
    secret = [*plane.folder.glob("*.key"), *plane.folder.glob("*.kubeconfig")]
    assert {_mode(path) for path in secret} == {0o600}
    assert [path.name for path in plane.folder.iterdir() if "master" in path.name] == []
    assert not list(plane.folder.glob("*.part"))


def _certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def _tls(plane: Plane) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(plane.folder / "ca.crt"))


def _command(plane: Plane, component: str) -> list[str]:
    return Path(f"/proc/{plane.components()[component]['pid']}/cmdline").read_bytes().decode().split("\0")


def _whoami(path: Path) -> dict[str, Any]:
    kubeconfig = Kubeconfig.load(path)
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    assert kubeconfig.tls is not None
    with httpx.Client(base_url=kubeconfig.server, verify=kubeconfig.tls, trust_env=False) as http:
        answer = http.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json=review)
    found: dict[str, Any] = answer.raise_for_status().json()["status"]["userInfo"]
    return found
