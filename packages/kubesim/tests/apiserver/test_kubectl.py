"""kubectl, unmodified."""

from __future__ import annotations

import http.server
import json
import re
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator

import httpx
import pytest

from tests.kubesim.apiserver.conftest import make_running, node, pod
from tests.kubesim.processes import ApiServer

pytestmark = pytest.mark.conformance

Kubectl = Callable[..., str]


class FakeKubelet(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f"log of {self.path}\n".encode())

    def log_message(self, *_args: object) -> None:
        pass


@pytest.fixture(scope="module")
def kubelet_port(server: ApiServer) -> Iterator[int]:
    """HTTPS with the certificates that the server keeps for kubelets; only it may come in."""
    served = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeKubelet)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(server.folder / "ca.crt"))
    tls.verify_mode = ssl.CERT_REQUIRED
    tls.load_cert_chain(server.folder / "kubelet.crt", server.folder / "kubelet.key")
    served.socket = tls.wrap_socket(served.socket, server_side=True)
    thread = threading.Thread(target=served.serve_forever)
    thread.start()
    yield served.server_port
    served.shutdown()
    served.server_close()
    thread.join()


@pytest.fixture(scope="module", autouse=True)
def nodes(http: httpx.Client, kubelet_port: int) -> None:
    for name in ("gpu-0", "gpu-1"):
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
            "nodeInfo": {"kubeletVersion": "v1.35.7", "osImage": "Debian", "kernelVersion": "6.1",
                         "containerRuntimeVersion": "virtual://1"},
        }  # fmt: skip
        body = {**node(name, **status), "spec": {"taints": []}}
        assert http.post("/api/v1/nodes", json=body).status_code == 201
        http.patch(
            f"/api/v1/nodes/{name}",
            json={"spec": {"taints": None}},
            headers={"Content-Type": "application/merge-patch+json"},
        )


def taints(http: httpx.Client, name: str) -> list[dict[str, str]]:
    return http.get(f"/api/v1/nodes/{name}").json()["spec"].get("taints", [])


def managers_of(http: httpx.Client, path: str, *fields: str) -> set[str]:
    found = set()
    for entry in http.get(path).json()["metadata"]["managedFields"]:
        node = entry["fieldsV1"]
        for field in fields:
            node = node.get(field) if node is not None else None
        if node is not None:
            found.add(entry["manager"])
    return found


def test_describe_node_and_pod(kubectl: Kubectl, http: httpx.Client) -> None:
    uid = http.post("/api/v1/namespaces/default/pods", json=pod("described", nodeName="gpu-0")).json()["metadata"][
        "uid"
    ]
    involved = {"kind": "Pod", "name": "described", "namespace": "default", "uid": uid}
    about = {"involvedObject": involved, "reason": "Started",
             "message": "it runs", "type": "Normal", "count": 1}  # fmt: skip
    http.post("/api/v1/namespaces/default/events", json={"metadata": {"generateName": "described."}, **about})
    shown = kubectl("describe", "pod", "described")
    assert re.search(r"^Node: +gpu-0/", shown, re.MULTILINE), shown
    assert "it runs" in shown, shown
    shown = kubectl("describe", "node", "gpu-0")
    assert "described" in shown and "nvidia.com/gpu" in shown and "KubeletReady" in shown
    assert "it runs" in kubectl("get", "events")
    kubectl("delete", "pod", "described", "--force", "--grace-period=0")


def test_label_annotate_taint_cordon(kubectl: Kubectl, http: httpx.Client) -> None:
    kubectl("label", "node", "gpu-0", "example.com/opt-in=true")
    kubectl("annotate", "node", "gpu-0", "note=a b")
    assert "gpu-0" in kubectl("get", "nodes", "-l", "example.com/opt-in in (true,yes)")
    kubectl("taint", "nodes", "gpu-0", "trainy.konduktor.ai/faulty=true:NoSchedule")
    assert taints(http, "gpu-0") == [{"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}]
    assert managers_of(http, "/api/v1/nodes/gpu-0", "f:spec", "f:taints") == {"kubectl-taint"}
    kubectl("taint", "nodes", "gpu-0", "trainy.konduktor.ai/faulty:NoSchedule-")
    assert taints(http, "gpu-0") == []
    kubectl("cordon", "gpu-0")
    assert "SchedulingDisabled" in kubectl("get", "node", "gpu-0")
    assert http.get("/api/v1/nodes?fieldSelector=spec.unschedulable=true").json()["items"]
    kubectl("uncordon", "gpu-0")
    assert "unschedulable" not in http.get("/api/v1/nodes/gpu-0").json()["spec"]
    kubectl("label", "node", "gpu-0", "example.com/opt-in-")
    assert "No resources" in kubectl("get", "nodes", "-l", "example.com/opt-in")


def test_drain_evicts(kubectl: Kubectl, http: httpx.Client) -> None:
    http.post("/api/v1/namespaces/default/pods", json=pod("drained", nodeName="gpu-1"))
    make_running(http, "drained")
    draining = threading.Thread(
        target=lambda: kubectl("drain", "gpu-1", "--force", "--ignore-daemonsets", "--timeout=60s")
    )
    draining.start()
    path = "/api/v1/namespaces/default/pods/drained"
    with http.stream("GET", "/api/v1/namespaces/default/pods?watch=1&fieldSelector=metadata.name=drained") as lines:
        for line in lines.iter_lines():
            if "deletionTimestamp" in json.loads(line)["object"]["metadata"]:
                break
    conditions = http.get(path).json()["status"]["conditions"]
    assert {"DisruptionTarget"} & {condition["type"] for condition in conditions}
    assert http.request("DELETE", path, json={"gracePeriodSeconds": 0}).status_code == 200
    draining.join()
    assert http.get("/api/v1/nodes/gpu-1").json()["spec"]["unschedulable"] is True
    kubectl("drain", "gpu-1")
    kubectl("uncordon", "gpu-1")


def test_apply_job_and_daemonset_twice(kubectl: Kubectl, http: httpx.Client) -> None:
    template = {"metadata": {"labels": {"app": "w"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}
    once = {**template, "spec": {**template["spec"], "restartPolicy": "Never"}}
    selector = {"matchLabels": {"app": "w"}}
    manifests = [
        {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"}, "spec": {"template": once}},
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "d"},
         "spec": {"selector": selector, "template": template}},
    ]  # fmt: skip
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    assert kubectl("apply", "-f", "-", stdin=text).count("created") == 2
    manifests[1]["metadata"]["labels"] = {"x": "y"}
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    assert kubectl("apply", "-f", "-", stdin=text).count("unchanged") == 1
    assert "0/1" in kubectl("get", "jobs")
    assert "j" in kubectl("get", "all")
    kubectl("delete", "job/j", "ds/d")


def test_wait_for_condition_and_for_deletion(kubectl: Kubectl, http: httpx.Client) -> None:
    http.post("/api/v1/namespaces/default/pods", json=pod("awaited"))
    said: list[str] = []
    waiting = threading.Thread(
        target=lambda: said.append(kubectl("wait", "--for=condition=Ready", "pod/awaited", "--timeout=60s"))
    )
    waiting.start()
    make_running(http, "awaited")
    waiting.join()
    assert "condition met" in said[0]
    gone = threading.Thread(target=lambda: said.append(kubectl("wait", "--for=delete", "pod/awaited", "--timeout=60s")))
    gone.start()
    kubectl("delete", "pod", "awaited")
    gone.join()
    assert len(said) == 2


def test_auth(kubectl: Kubectl) -> None:
    if "whoami" in kubectl("auth", "--help"):  # kubectl before 1.26 has no such command
        assert "kubesim-admin" in kubectl("auth", "whoami")
    assert "yes" in kubectl("auth", "can-i", "delete", "nodes")
    said = kubectl("auth", "can-i", "delete", "nodes", "--as=system:serviceaccount:default:default", fails=True)
    assert "no" in said
    assert "pods" in kubectl("auth", "can-i", "--list", "--as=system:kube-scheduler")
    kubectl("create", "serviceaccount", "robot")
    if "token " in kubectl("create", "--help"):
        assert kubectl("create", "token", "robot").count(".") == 2


def test_logs_come_from_the_kubelet(kubectl: Kubectl, http: httpx.Client) -> None:
    http.post("/api/v1/namespaces/default/pods", json=pod("talks", nodeName="gpu-0"))
    said = kubectl("logs", "talks", "--tail=5")
    assert said == "log of /containerLogs/default/talks/main?tailLines=5\n"
    assert "following" not in kubectl("logs", "-f", "talks")
    kubectl("delete", "pod", "talks", "--force", "--grace-period=0")
    assert "NotFound" in kubectl("logs", "talks", fails=True)


def test_watching_tables(kubectl: Kubectl, server: ApiServer, http: httpx.Client) -> None:
    argv = ["kubectl", f"--kubeconfig={server.folder / 'admin.kubeconfig'}", "get", "cm", "-w", "--watch-only",
            f"--cache-dir={server.folder / 'cache'}"]  # fmt: skip
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None

        def poke() -> None:
            number = 0
            while not done.wait(0.2):
                number += 1
                http.post("/api/v1/namespaces/default/configmaps", json={"metadata": {"name": f"seen-{number}"}})

        done = threading.Event()
        poking = threading.Thread(target=poke)
        poking.start()
        header, first = watching.stdout.readline(), watching.stdout.readline()
        done.set()
        poking.join()
        watching.terminate()
    assert header.split() == ["NAME", "DATA", "AGE"] and first.startswith("seen-")
