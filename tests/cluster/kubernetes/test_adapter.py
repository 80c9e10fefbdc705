"""The Kubernetes adapter against the real server, with no more rights than deploy/rbac gives."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import urllib3
from ruamel.yaml import YAML

from gameday.cluster import kube_transport, kubernetes
from gameday.cluster.kube_transport import call_name
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.nodes import REASON_ANNOTATION, decided_at, snapshot, taint_manager
from gameday.cluster.pods import PodFollower
from gameday.errors import AdapterError, KubernetesError
from gameday.values.nodes import Taint
from tests.support.world import NAMESPACE, OPT_IN, PATIENCE_S, World, unique

OURS = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}
FOREIGN = {"key": "example.com/busy", "value": "yes", "effect": "NoSchedule"}


def taint(raw: dict[str, str]) -> Taint:
    return Taint.model_validate(raw)


def flat(raw: dict[str, str]) -> tuple[str, str, str]:
    return raw["key"], raw["value"], raw["effect"]


@contextmanager
def adapter(world: World, kubeconfig: Path) -> Iterator[Kubernetes]:
    found = Kubernetes(world.profile(kubeconfig))
    try:
        yield found
    finally:
        found.close()


def changed_kubeconfig(world: World, folder: Path, *, token: str | None = None, server: str | None = None) -> Path:
    yaml = YAML(typ="safe", pure=True)
    content = yaml.load(world.kubeconfig("gameday-runner").read_text())
    if token:
        content["users"][0]["user"]["token"] = token
    if server:
        content["clusters"][0]["cluster"]["server"] = server
    path = folder / "changed.kubeconfig"
    with path.open("w") as file:
        yaml.dump(content, file)
    return path


def token_of(world: World) -> str:
    content = YAML(typ="safe", pure=True).load(world.kubeconfig("gameday-runner").read_text())
    token: str = content["users"][0]["user"]["token"]
    return token


# --- reads ---


def test_nodes_are_ready_or_not_and_pods_are_left_alone_or_not(
    world: World, runner: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kubernetes, "_OBJECT_PAGE", 1)
    ready, unready = world.add_node(), world.add_node(ready="Unknown")
    kept, failed, ending, waiting = (unique("p") for _ in range(4))
    uids = {name: world.add_pod(name, run="r", node=ready) for name in (kept, failed, ending)}
    uids[waiting] = world.add_pod(waiting, run="r")
    world.report(failed, None, phase="Failed")
    world.core.delete_namespaced_pod(ending, NAMESPACE, grace_period_seconds=60)
    nodes = runner.readiness_of_nodes()
    assert (nodes[ready].ready, nodes[unready].ready) == (True, False)
    found = runner.pods_left_alone()
    assert found[uids[kept]] == f"{NAMESPACE}/{kept}"
    assert not {uids[failed], uids[ending], uids[waiting]} & found.keys()
    asked = runner.counter.cost().by_call
    assert asked["LIST nodes"] >= 2
    assert asked["LIST pods"] >= 2  # the pod that ends is on a page, too


def test_candidates_are_the_nodes_with_all_the_labels(world: World, runner: Kubernetes) -> None:
    group = {"test.example/group": unique("g")}
    ready = world.add_node(labels=group)
    cordoned = world.add_node(labels=group, unschedulable=True)
    broken = world.add_node(labels=group, ready="False")
    world.add_node()
    seen = {one.name: one.status for one in runner.candidates({**OPT_IN, **group})}
    assert seen == {ready: "Ready", cordoned: "Ready,SchedulingDisabled", broken: "NotReady"}
    assert runner.counter.cost().by_call == {"LIST nodes": 1}


def test_candidates_cost_the_same_however_large_the_nodes_are(world: World, runner: Kubernetes) -> None:
    group = {"test.example/group": unique("g")}
    for _ in range(3):
        world.add_node(labels=group, annotations={"example.com/inventory": "x" * 20_000})
    assert len(runner.candidates(group)) == 3
    assert runner.counter.cost().bytes_received < 10_000


def test_candidates_are_the_first_page_by_name(
    world: World, runner: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"test.example/group": unique("g")}
    names = sorted(world.add_node(labels=group) for _ in range(3))
    monkeypatch.setattr(kubernetes, "CANDIDATE_PAGE", 2)
    assert [one.name for one in runner.candidates(group)] == names[:2]
    assert runner.counter.cost().requests == 1
    assert [one.name for one in runner.all_candidates(group)] == names
    assert runner.counter.cost().requests == 3


def test_labels_that_no_node_carries_yield_no_candidate(runner: Kubernetes) -> None:
    assert runner.candidates({"test.example/group": "nobody"}) == []


def test_a_snapshot_holds_what_a_game_day_may_change(world: World, runner: Kubernetes) -> None:
    decided = "2026-01-02T03:04:05+00:00"
    note = {REASON_ANNOTATION: json.dumps({"decided": decided})}
    name = world.add_node(taints=[OURS], unschedulable=True, annotations=note, labels={"a": "b"})
    world.core.patch_node_status(name, {"status": {"nodeInfo": node_info("boot-7")}})
    node = runner.node(name)
    seen = snapshot(node)
    assert (seen.node, seen.unschedulable, seen.taints) == (name, True, (taint(OURS), *seen.taints[1:]))
    assert (seen.labels["a"], seen.annotations, seen.boot_id) == ("b", note, "boot-7")
    assert (seen.conditions, seen.allocatable_gpus) == ({"Ready": "True"}, 8)
    moment = decided_at(node)
    assert moment is not None
    assert moment.isoformat() == decided


def node_info(boot: str) -> dict[str, str]:
    keys = ("architecture", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion", "kubeletVersion")
    return {**dict.fromkeys((*keys, "machineID", "operatingSystem", "osImage", "systemUUID"), "x"), "bootID": boot}


@pytest.mark.parametrize("text", ["", "no json", "[]", "{}", '{"decided": 5}', '{"decided": "2026-01-02T03:04:05"}'])
def test_a_reason_without_a_moment_has_no_decision_time(world: World, runner: Kubernetes, text: str) -> None:
    name = world.add_node(annotations={REASON_ANNOTATION: text})
    assert decided_at(runner.node(name)) is None


def test_a_node_without_gpus_or_status_is_unknown_not_zero(world: World, runner: Kubernetes) -> None:
    name = unique("bare")
    world.core.create_node({"metadata": {"name": name}})
    seen = snapshot(runner.node(name))
    assert (seen.allocatable_gpus, seen.boot_id, seen.conditions) == (None, "", {})


# --- writes ---


def test_a_writer_in_between_loses_nothing(world: World, runner: Kubernetes) -> None:
    name = world.add_node()
    asked: list[str] = []

    def change(node: Any) -> dict[str, Any]:
        asked.append(node.metadata.resource_version)
        if len(asked) == 1:
            world.taint(name, FOREIGN)
            world.core.patch_node(name, {"metadata": {"annotations": {"example.com/note": "theirs"}}})
        kept = [runner.api.sanitize_for_serialization(one) for one in node.spec.taints or []]
        return {"spec": {"taints": [*kept, OURS]}, "metadata": {"annotations": {"test/ours": "1"}}}

    after = snapshot(runner.change_node(name, change))
    assert len(set(asked)) == 2
    assert world.taints(name) == [flat(FOREIGN), flat(OURS)]
    assert after.annotations == {"example.com/note": "theirs", "test/ours": "1"}
    assert taint_manager(world.core.read_node(name)) == "gameday"


def test_a_writer_that_always_loses_the_race_gives_up(world: World, runner: Kubernetes) -> None:
    name = world.add_node()
    asked: list[int] = []

    def change(_: Any) -> dict[str, Any]:
        asked.append(1)
        world.core.patch_node(name, {"metadata": {"annotations": {"example.com/tick": str(len(asked))}}})
        return {"spec": {"unschedulable": True}}

    with pytest.raises(KubernetesError, match=rf"patch node {name}: lost 8 races"):
        runner.change_node(name, change)
    assert len(asked) == 8
    assert not world.core.read_node(name).spec.unschedulable


def test_nothing_to_change_is_not_written(world: World, runner: Kubernetes) -> None:
    name = world.add_node(taints=[FOREIGN])
    before = world.core.read_node(name).metadata.resource_version
    runner.restore_node(name, lambda one: one == taint(OURS), unschedulable=False)
    assert world.core.read_node(name).metadata.resource_version == before
    assert runner.counter.cost().by_call == {"GET nodes": 1}


def test_restoring_a_node_removes_exactly_our_taint(world: World, runner: Kubernetes) -> None:
    other_value, other_effect = {**OURS, "value": "mine"}, {**OURS, "effect": "NoExecute"}
    name = world.add_node(taints=[FOREIGN, OURS, other_effect], unschedulable=True)
    before, after = runner.restore_node(name, lambda one: one == taint(OURS), unschedulable=False)
    assert before.unschedulable
    assert taint(OURS) in before.taints
    assert not after.unschedulable
    assert world.taints(name) == [flat(FOREIGN), flat(other_effect)]
    world.taint(name, other_value)
    runner.restore_node(name, lambda one: one == taint(OURS), unschedulable=False)
    assert world.taints(name) == [flat(other_value)]


def test_restoring_a_node_keeps_a_cordon_from_before(world: World, runner: Kubernetes) -> None:
    name = world.add_node()
    runner.restore_node(name, lambda one: False, unschedulable=True)
    assert world.core.read_node(name).spec.unschedulable is True


def test_a_cordon_changes_nothing_else(world: World, runner: Kubernetes) -> None:
    name = world.add_node(taints=[FOREIGN])
    runner.cordon(name)
    assert world.core.read_node(name).spec.unschedulable is True
    assert flat(FOREIGN) in world.taints(name)


def test_an_eviction_obeys_the_budget(world: World, runner: Kubernetes) -> None:
    name, labels = unique("trainer"), {"app": unique("app")}
    pod = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    world.core.create_namespaced_pod("training", pod)
    budget = {"metadata": {"name": name}, "spec": {"minAvailable": 1, "selector": {"matchLabels": labels}}}
    world.policy.create_namespaced_pod_disruption_budget("training", budget)
    allow(world, name, 0)
    healthy = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    world.core.patch_namespaced_pod_status(name, "training", {"status": healthy})
    assert runner.evict("training", name) is False
    allow(world, name, 1)
    assert runner.evict("training", name) is True
    assert runner.evict("training", unique("gone")) is True


def allow(world: World, budget: str, disruptions: int) -> None:
    counts = {"currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1, "observedGeneration": 1}
    status = {"status": {"disruptionsAllowed": disruptions, **counts}}
    world.policy.patch_namespaced_pod_disruption_budget_status(budget, "training", status)


def test_deleting_a_pod_returns_its_uid(world: World, runner: Kubernetes) -> None:
    run = unique("run")
    uid = world.add_pod(unique("pod"), run)
    name = world.pods(run)[0]
    assert runner.delete_pod(name) == uid
    assert runner.delete_pod(name) is None


def test_the_identity_is_that_of_the_server(world: World, runner: Kubernetes) -> None:
    found = runner.identity()
    assert found.server == world.url
    assert found.version.startswith("v1.")
    assert found.uid == world.core.read_namespace("kube-system").metadata.uid
    assert runner.counter.cost().by_call == {"GET version": 1, "GET namespaces": 1}


# --- errors ---


def test_an_error_names_server_act_cause_and_hint(world: World, runner: Kubernetes) -> None:
    with pytest.raises(KubernetesError) as caught:
        runner.node("no-such-node")
    error = caught.value
    assert error.status == 404
    assert str(error).startswith(f'{world.url}: read node no-such-node: 404 nodes "no-such-node" not found; ')
    assert "the node was deleted, or never was there" in error.hint


def test_a_forbidden_request_names_the_account_and_the_right(world: World, reaper: Kubernetes) -> None:
    with pytest.raises(KubernetesError) as caught:
        reaper.candidates(OPT_IN)
    assert caught.value.status == 403
    assert "system:serviceaccount:gameday:gameday-reaper" in str(caught.value)
    assert 'cannot list resource "nodes"' in str(caught.value)
    assert "deploy/rbac" in caught.value.hint


def test_a_wrong_token_is_reported_and_not_shown(world: World, tmp_path: Path) -> None:
    secret = "eyJ-not-a-real-token"
    with adapter(world, changed_kubeconfig(world, tmp_path, token=secret)) as stranger:
        with pytest.raises(KubernetesError) as caught:
            stranger.node("any")
        assert caught.value.status == 401
        assert "does not take these credentials" in caught.value.hint
        assert "deploy/rbac" not in caught.value.hint
        assert secret not in f"{caught.value!s}{caught.value!r}{vars(caught.value)}"


def test_no_error_shows_the_runners_token(world: World, runner: Kubernetes) -> None:
    with pytest.raises(KubernetesError) as invalid:
        runner.create_pod({"metadata": {"name": "BAD NAME"}, "spec": {"containers": []}})
    with pytest.raises(KubernetesError) as forbidden, runner.explained("list secrets"):
        runner.core.list_namespaced_secret(NAMESPACE)
    assert (invalid.value.status, forbidden.value.status) == (422, 403)
    for error in (invalid.value, forbidden.value):
        assert token_of(world) not in f"{error!s}{error!r}{vars(error)}"
        assert "\n" not in str(error)


def test_a_server_that_does_not_answer_is_named_with_a_hint(
    world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kube_transport, "_RETRIES", urllib3.Retry(connect=1, backoff_factor=0, redirect=0))
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        server = f"https://127.0.0.1:{unused.getsockname()[1]}"
        path = changed_kubeconfig(world, tmp_path, server=server)
        with adapter(world, path) as lost, pytest.raises(KubernetesError) as caught:
            lost.node("any")
    assert caught.value.status is None
    assert str(caught.value).startswith(f"{server}: read node any: ")
    assert "Connection refused" in str(caught.value)
    assert "is the API server up" in caught.value.hint
    assert token_of(world) not in str(caught.value)


class TlsEndsAtFirst(threading.Thread):
    """A proxy that ends its first connections in the TLS handshake, as a killed server does, and passes on the next."""

    def __init__(self, server: str, ends: int) -> None:
        super().__init__()
        url = urllib3.util.parse_url(server)
        self._server = (url.host or "", url.port or 0)
        self._ends = ends
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self._passed_on = socket.socket()
        self.url = f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def run(self) -> None:
        for _ in range(self._ends):
            with self._listener.accept()[0] as ended:
                ended.recv(65536)
        self._passed_on, _ = self._listener.accept()
        with self._passed_on, socket.create_connection(self._server) as far:
            back = threading.Thread(target=self._copy, args=(far, self._passed_on))
            back.start()
            self._copy(self._passed_on, far)
            back.join()

    @staticmethod
    def _copy(source: socket.socket, sink: socket.socket) -> None:
        while chunk := source.recv(65536):
            sink.sendall(chunk)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        for open_socket in (self._listener, self._passed_on):
            with suppress(OSError):
                open_socket.shutdown(socket.SHUT_RDWR)
        self.join()
        self._listener.close()


def test_a_connection_that_ends_in_its_tls_handshake_is_tried_again(world: World, tmp_path: Path) -> None:
    name = world.add_node()
    with closing(TlsEndsAtFirst(world.url, ends=2)) as proxy:
        proxy.start()
        with adapter(world, changed_kubeconfig(world, tmp_path, server=proxy.url)) as patient:
            assert patient.node(name).metadata.name == name


def test_an_untrusted_certificate_is_reported(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_transport, "_RETRIES", urllib3.Retry(0))
    path = changed_kubeconfig(world, tmp_path)
    yaml = YAML(typ="safe", pure=True)
    content = yaml.load(path.read_text())
    del content["clusters"][0]["cluster"]["certificate-authority-data"]
    with path.open("w") as file:
        yaml.dump(content, file)
    with adapter(world, path) as stranger, pytest.raises(KubernetesError, match=r"(?i)certificate verify failed"):
        stranger.node("any")


@pytest.mark.parametrize("content", [None, "", "{", "kind: Config", "- a\n- b\n"])
def test_a_file_that_is_no_kubeconfig_is_refused(world: World, tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    with pytest.raises(AdapterError, match="no usable Kubernetes configuration") as caught:
        Kubernetes(world.profile(path))
    assert caught.value.url == str(path)


# --- what it costs ---


@pytest.mark.parametrize(
    ("method", "path", "name"),
    [
        ("GET", "/api/v1/nodes?limit=500", "LIST nodes"),
        ("GET", "/api/v1/nodes/a", "GET nodes"),
        ("GET", "/api/v1/nodes?watch=True&resourceVersion=7", "WATCH nodes"),
        ("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Da", "LIST pods"),
        ("PATCH", "/api/v1/nodes/a/status", "PATCH nodes/status"),
        ("GET", "/api/v1/namespaces/gameday/pods", "LIST pods"),
        ("GET", "/api/v1/namespaces/gameday/pods/p/log", "GET pods/log"),
        ("POST", "/api/v1/namespaces/gameday/pods/p/eviction", "POST pods/eviction"),
        ("GET", "/api/v1/namespaces/kube-system", "GET namespaces"),
        ("GET", "/api/v1/namespaces", "LIST namespaces"),
        ("DELETE", "/apis/batch/v1/namespaces/gameday/jobs/j", "DELETE jobs"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/gameday/leases", "LIST leases"),
        ("GET", "/version/", "GET version"),
    ],
)
def test_calls_are_named_by_verb_and_resource(method: str, path: str, name: str) -> None:
    assert call_name(method, f"https://127.0.0.1:6443{path}") == name


def test_a_watch_is_one_request_and_its_bytes_count_as_they_come(world: World, runner: Kubernetes) -> None:
    run = unique("run")
    with PodFollower(runner, run) as pods:
        assert pods.wait_synced(PATIENCE_S)
        before = runner.counter.cost()
        name = unique("pod")
        world.add_pod(name, run)
        assert pods.wait(lambda: pods.seen(name) is not None, PATIENCE_S)
        after = runner.counter.cost()
    sent = len(
        json.dumps(world.core.api_client.sanitize_for_serialization(world.core.read_namespaced_pod(name, NAMESPACE)))
    )
    assert after.by_call == {"WATCH pods": 1}
    assert after.bytes_received - before.bytes_received > sent / 2


def test_bodies_count_in_both_directions(world: World, runner: Kubernetes) -> None:
    node = world.add_node(annotations={"example.com/large": "x" * 5_000})
    runner.change_node(node, lambda _: {"metadata": {"annotations": {"example.com/other": "y" * 3_000}}})
    cost = runner.counter.cost()
    assert cost.by_call == {"GET nodes": 1, "PATCH nodes": 1}
    assert cost.bytes_received > 13_000
    assert cost.bytes_sent > 3_000


def test_refused_requests_count_too(runner: Kubernetes) -> None:
    for _ in range(2):
        with pytest.raises(KubernetesError):
            runner.node("none")
    assert runner.counter.cost().by_call == {"GET nodes": 2}
