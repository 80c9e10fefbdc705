"""A real kubelet in the lab: what runs on it, and that nothing of it is left."""

from __future__ import annotations

import io
import json
import secrets
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gameday.errors import ChildError
from gameday_rehearsal.lab.real_node.image import write_image
from gameday_rehearsal.lab.real_node.namespaces import first_process
from gameday_rehearsal.lab.real_node.network import PODS, REAL_NODE
from gameday_rehearsal.lab.real_node.node import import_image
from gameday_rehearsal.programs import find_program
from tests.rehearsal.lab.real_node.lab import (
    RealLab,
    left_in,
    namespaces,
    on_machine,
    pod,
    real_lab,
    said_in_kernel_log,
)
from tests.rehearsal.processes import naming, until

pytestmark = pytest.mark.lab
_TUNABLES = ("kernel/panic", "kernel/panic_on_oops", "vm/overcommit_memory")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealLab]:
    with real_lab(tmp_path_factory.mktemp("real") / "lab") as started:
        yield started


def test_a_privileged_pod_of_the_hosts_processes_writes_to_the_kernel_log(lab: RealLab) -> None:
    token = secrets.token_hex(8)
    script = f"echo '<6>gameday-test {token}' >/dev/kmsg && nsenter -t 1 -m -u -n hostname && cat /proc/1/cmdline"
    lab.kubectl("apply", "-f", "-", stdin=pod("writes", "sh", "-c", script, more=_PRIVILEGED))
    _until_phase(lab, "writes", "Succeeded")
    said = lab.kubectl("logs", "writes")
    assert said.startswith(f"{REAL_NODE}\n")
    assert "real_node.inside" in said
    assert said_in_kernel_log(token)


def test_a_pod_without_rights_gets_neither_and_its_exit_code_is_told(lab: RealLab) -> None:
    fields = json.dumps({"securityContext": {"runAsUser": 65532, "allowPrivilegeEscalation": False}})
    script = "id -u; echo no >/dev/kmsg || exit 3"
    lab.kubectl("apply", "-f", "-", stdin=pod("may-not", "sh", "-c", script, more=fields))
    _until_phase(lab, "may-not", "Failed")
    assert lab.kubectl("logs", "may-not").startswith("65532\n")
    assert _pod(lab, "may-not")["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 3


def test_a_pod_is_ready_by_an_exec_probe_and_answers_exec(lab: RealLab) -> None:
    probe = json.dumps({"readinessProbe": {"exec": {"command": ["cat", "/tmp/ready"]}, "periodSeconds": 1}})
    lab.kubectl("apply", "-f", "-", stdin=pod("probed", "sh", "-c", "sleep infinity", more=probe))
    _until_phase(lab, "probed", "Running")
    assert not _is_ready(lab, "probed")
    assert lab.kubectl("exec", "probed", "--", "sh", "-c", "echo yes >/tmp/ready; cat /tmp/ready") == "yes\n"
    until(lambda: _is_ready(lab, "probed"), 60, "the probe has seen the file")
    assert _pod(lab, "probed")["status"]["podIP"].startswith(str(PODS.network_address).removesuffix(".0"))


def test_a_service_and_its_name_lead_to_a_pod_and_a_claim_gets_a_volume_of_the_pods_group(lab: RealLab) -> None:
    lab.kubectl("apply", "-f", "-", stdin=_SERVER)
    _until_phase(lab, "server", "Running")
    ask = "until wget -qO- http://server.default.svc.cluster.local/owner; do sleep 0.2; done"
    lab.kubectl("apply", "-f", "-", stdin=pod("asks", "sh", "-c", ask))
    _until_phase(lab, "asks", "Succeeded")
    assert lab.kubectl("logs", "asks").endswith("65532 65532\n")


def test_what_a_pod_sees_of_its_annotations_follows_them(lab: RealLab) -> None:
    watched = json.loads(pod("annotated", "sh", "-c", "until grep -q new /it/a; do sleep 0.1; done"))
    watched["metadata"]["annotations"] = {"a": "old"}
    field = {"path": "a", "fieldRef": {"fieldPath": "metadata.annotations['a']"}}
    watched["spec"]["volumes"] = [{"name": "it", "downwardAPI": {"items": [field]}}]
    watched["spec"]["containers"][0]["volumeMounts"] = [{"name": "it", "mountPath": "/it"}]
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(watched))
    _until_phase(lab, "annotated", "Running")
    lab.kubectl("annotate", "--overwrite", "pod", "annotated", "a=new")
    _until_phase(lab, "annotated", "Succeeded")


def test_an_image_from_a_file_is_run_and_a_torn_one_refused(lab: RealLab, tmp_path: Path) -> None:
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        tar.add(find_program("busybox").resolve(), "busybox")
    write_image(tmp_path / "image.tar", "localhost/said:1", layer.getvalue(), ["/busybox", "echo", "from a file"])
    import_image(lab.node, tmp_path / "image.tar")
    own = json.loads(pod("said"))
    own["spec"]["containers"][0] |= {"image": "localhost/said:1", "command": None}
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(own))
    _until_phase(lab, "said", "Succeeded")
    assert lab.kubectl("logs", "said") == "from a file\n"
    (tmp_path / "torn.tar").write_bytes((tmp_path / "image.tar").read_bytes()[:5000])
    with pytest.raises(ChildError, match=r"no image from .*torn\.tar"):
        import_image(lab.node, tmp_path / "torn.tar")


def test_after_a_power_failure_the_node_starts_its_pods_again(lab: RealLab) -> None:
    kept = json.loads(pod("kept", "sh", "-c", "sleep infinity"))
    kept["spec"]["restartPolicy"] = "Always"
    lab.kubectl("apply", "-f", "-", stdin=json.dumps(kept))
    _until_phase(lab, "kept", "Running")
    before = first_process(lab.node)
    lab.run("kill", REAL_NODE)
    until(lambda: _restarts(lab, "kept") == 1 and _is_ready(lab, "kept"), 120, "its container runs again")
    assert first_process(lab.node) != before
    assert not Path(f"/proc/{before}").exists()


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_whatever_ends_the_lab(by: signal.Signals, tmp_path: Path) -> None:
    sysctls = {name: (Path("/proc/sys") / name).read_text() for name in _TUNABLES}
    with real_lab(tmp_path / "lab") as lab:
        during = on_machine(lab)
        lab.kubectl("apply", "-f", "-", stdin=pod("runs", "sh", "-c", "sleep infinity", more=_PRIVILEGED))
        _until_phase(lab, "runs", "Running")
        spaces = namespaces(lab)
        assert len(left_in(spaces)) > 5
        assert {name: (Path("/proc/sys") / name).read_text() for name in _TUNABLES} == sysctls
        assert on_machine(lab) == during, "a pod changes nothing but what is below the node's control groups"
        groups = {one for one in during if "/cgroup/" in one}
        assert groups
        lab.end(by)
        until(lambda: not naming(lab.folder) and not left_in(spaces), 30, "every process has ended")
        assert on_machine(lab) == during - groups


_SERVER = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: kept}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: server}
spec: {selector: {app: server}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Pod
metadata: {name: server, labels: {app: server}}
spec:
  securityContext: {runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532}
  nodeSelector: {real-node.gameday.dev/kubelet: "true"}
  terminationGracePeriodSeconds: 1
  volumes: [{name: kept, persistentVolumeClaim: {claimName: kept}}]
  containers:
    - name: main
      image: localhost/gameday/busybox:lab
      imagePullPolicy: Never
      command: [sh, -c, "touch /kept/it && stat -c '%u %g' /kept/it >/kept/owner && exec httpd -f -p 8080 -h /kept"]
      volumeMounts: [{name: kept, mountPath: /kept}]
"""
_PRIVILEGED = json.dumps({"securityContext": {"privileged": True}})


def _pod(lab: RealLab, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(lab.kubectl("get", "pod", name, "-o", "json"))
    return found


def _until_phase(lab: RealLab, name: str, phase: str) -> None:
    until(lambda: _pod(lab, name)["status"].get("phase") == phase, 60, f"{name} is {phase}")


def _is_ready(lab: RealLab, name: str) -> bool:
    conditions = _pod(lab, name)["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _restarts(lab: RealLab, name: str) -> int:
    return sum(one["restartCount"] for one in _pod(lab, name)["status"].get("containerStatuses", []))
