"""The nodes' HTTPS endpoint: container logs through the embedded API server, and nobody else let in."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from kubesim.certificates import Authority
from tests.rehearsal.nodes.conftest import Cluster, Program, agent, eventually, simulated

pytestmark = pytest.mark.slow

LOGS = "/api/v1/namespaces/default/pods/{}/log"
XID = {"role": "inject", "gpu": 3, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


@pytest.fixture(scope="module")
def printed(cluster: Cluster) -> Iterator[list[str]]:
    """The lines of the ready agent pod `inject`."""
    cluster.create(agent("inject", "gpu-node-1", XID))
    eventually(lambda: cluster.is_ready("inject"), "the fault in")
    lines = cluster.http.get(LOGS.format("inject")).text.splitlines()
    assert lines
    yield lines
    cluster.delete("inject")
    cluster.gone("inject")


def asked(cluster: Cluster, **options: object) -> str:
    params = {key: str(value) for key, value in options.items()}
    return cluster.http.get(LOGS.format("inject"), params=params).raise_for_status().text


def test_options_choose_the_lines(cluster: Cluster, printed: list[str]) -> None:
    assert asked(cluster, tailLines=1) == printed[-1] + "\n"
    assert asked(cluster, tailLines=0) == ""
    assert asked(cluster, limitBytes=9) == printed[0][:9]
    assert asked(cluster, sinceTime="2999-01-01T00:00:00Z") == ""
    stamp, _, text = asked(cluster, timestamps="true").splitlines()[0].partition(" ")
    assert (len(stamp), stamp[-1], text) == (30, "Z", printed[0])


def test_a_container_without_a_log_gets_a_kubelets_message(cluster: Cluster, printed: list[str]) -> None:
    answer = cluster.http.get(LOGS.format("inject"), params={"previous": "true"})
    assert answer.status_code == 400
    assert 'previous terminated container "agent" in pod "inject" not found' in answer.json()["message"]


def test_a_follower_that_leaves_is_noticed_and_no_error(cluster: Cluster, tmp_path: Path) -> None:
    cluster.create(simulated("endless", "gpu-node-2", policy="Always"))
    cluster.phase("endless", "Running")
    with cluster.http.stream("GET", LOGS.format("endless"), params={"follow": "true"}) as answer:
        assert answer.status_code == 200  # before there is a line
        first = next(answer.iter_lines())
    following = eventually(
        lambda: len(lines := cluster.http.get(LOGS.format("endless")).text.splitlines()) > 1 and lines, "another line"
    )
    assert following[0] == first
    cluster.delete("endless")
    cluster.gone("endless")
    assert cluster.nodes.end() == (0, "")
    cluster.nodes = cluster.start_nodes()


def test_only_the_api_servers_certificate_is_let_in(cluster: Cluster) -> None:
    folder, url = cluster.folder / "api", f"https://127.0.0.1:{cluster.nodes.ready['kubelet_port']}"
    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    with httpx.Client(verify=tls, trust_env=False, timeout=30) as nobody, pytest.raises(httpx.TransportError):
        nobody.get(f"{url}/pods")
    somebody = Authority(folder, "ca").client("somebody", "somebody")
    tls.load_cert_chain(somebody.certificate, somebody.key)
    with httpx.Client(verify=tls, trust_env=False, timeout=30) as other:
        assert other.get(f"{url}/pods").status_code == 403
    tls.load_cert_chain(folder / "apiserver-kubelet-client.crt", folder / "apiserver-kubelet-client.key")
    with httpx.Client(verify=tls, trust_env=False, timeout=30) as apiserver:
        assert apiserver.get(f"{url}/healthz").text == "ok"
        assert apiserver.get(f"{url}/pods").json()["kind"] == "PodList"


def test_a_deleted_node_comes_back_when_its_kubelet_is_started(cluster: Cluster) -> None:
    from gameday.host.virtual import VirtualHost

    uid = cluster.node("gpu-node-3")["metadata"]["uid"]
    cluster.http.delete("/api/v1/nodes/gpu-node-3").raise_for_status()
    VirtualHost(cluster.host("gpu-node-3")).run(["systemctl", "restart", "kubelet"], 5)
    path = "/api/v1/nodes/gpu-node-3"
    node = eventually(lambda: (a := cluster.http.get(path)).status_code == 200 and a.json(), "registered anew")
    assert node["metadata"]["uid"] != uid
    assert {c["type"]: c["status"] for c in node["status"]["conditions"]}["Ready"] == "True"
    lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/gpu-node-3"

    def owner() -> str:
        answer = cluster.http.get(lease)
        return answer.json()["metadata"]["ownerReferences"][0]["uid"] if answer.status_code == 200 else ""

    eventually(lambda: owner() == node["metadata"]["uid"], "a Lease of the new Node's own")


def test_a_folder_without_certificates_is_a_plain_error(cluster: Cluster, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"kubelet\.crt: no such file; the data folders of the lab") as failed:
        Program("gameday_rehearsal.nodes", "--kubeconfig", cluster.kubeconfig, "--tls-folder", str(tmp_path))
    assert "Traceback" not in str(failed.value)
    for name in ("kubelet.crt", "kubelet.key", "ca.crt"):
        (tmp_path / name).write_text("rubbish")
    with pytest.raises(AssertionError, match="cannot be used"):
        Program("gameday_rehearsal.nodes", "--kubeconfig", cluster.kubeconfig, "--tls-folder", str(tmp_path))


def test_nodes_without_certificates_join_and_logs_say_why_there_are_none(cluster: Cluster) -> None:
    bare = Program(
        "gameday_rehearsal.nodes", "--kubeconfig", cluster.kubeconfig, "--nodes", "1", "--name-prefix", "bare"
    )
    try:
        assert bare.ready["kubelet_port"] is None
        assert cluster.node("bare-1")["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 0
        cluster.create(simulated("mute", "bare-1"))
        cluster.phase("mute", "Running")
        answer = cluster.http.get(LOGS.format("mute"))
        assert "no kubelet port" in answer.json()["message"]
        cluster.delete("mute")
        cluster.gone("mute")
    finally:
        assert bare.end() == (0, "")
