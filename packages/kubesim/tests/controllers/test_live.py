"""Scheduler and controllers as a process against the embedded API server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubesim.client import JSON_PATCH
from kubesim.controllers.conditions import condition, holds
from kubesim.errors import ApiError

from .conftest import SHORT_GRACE_S, Cluster
from .kubelets import EXITS

pytestmark = pytest.mark.conformance

DEFAULT = "/api/v1/namespaces/default"
JOBS = "/apis/batch/v1/namespaces/default/jobs"
FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}


def template(exits: str = "", gpus: int = 0, **spec: Any) -> Any:
    resources = {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {}
    annotations = {EXITS: exits} if exits else {}
    containers = [{"name": "main", "image": "example/work:1", "resources": resources}]
    return {
        "metadata": {"annotations": annotations, "labels": {"app": "work"}},
        "spec": {"containers": containers, **spec},
    }


def pod(name: str, **options: Any) -> Any:
    made = template(**options)
    return {"apiVersion": "v1", "kind": "Pod", **made, "metadata": {**made["metadata"], "name": name}}


def job(name: str, pod_options: Any = None, **spec: Any) -> Any:
    made = template(**{"restartPolicy": "Never", **(pod_options or {})})
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": made, **spec}}


def taints(node: Any) -> set[tuple[str, str]]:
    if node is None:
        return {("the node is not seen yet", "")}
    return {(taint["key"].rpartition("/")[2], taint["effect"]) for taint in node["spec"].get("taints") or ()}


async def add_taint(cluster: Cluster, node: str, taint: Any) -> None:
    have = (await cluster.api.get(f"/api/v1/nodes/{node}"))["spec"].get("taints") or []
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [*have, taint]}})


async def drop_taint(cluster: Cluster, node: str, key: str) -> None:
    have = (await cluster.api.get(f"/api/v1/nodes/{node}"))["spec"].get("taints") or []
    kept = [taint for taint in have if taint["key"] != key]
    await cluster.api.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": kept}})


def running(pods: list[Any]) -> list[Any]:
    return [p for p in pods if p and p["status"]["phase"] == "Running" and not p["metadata"].get("deletionTimestamp")]


async def test_job_runs_to_completion_and_counts_once(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1", "n2")
    await cluster.api.post(JOBS, job("train", {"exits": "Succeeded", "gpus": 4}, parallelism=3, completions=5))
    await cluster.until("job complete", lambda: holds(cluster.one("jobs", "train") or {}, "Complete"))
    status = cluster.one("jobs", "train")["status"]
    assert status["succeeded"] == 5
    assert "active" not in status
    assert "failed" not in status
    pods = cluster.pods_of("train")
    assert {p["spec"]["nodeName"] for p in pods} == {"n1", "n2"}
    assert len(pods) == 5
    assert not any(p["metadata"].get("finalizers") for p in pods)
    await cluster.until("events", lambda: {"SuccessfulCreate", "Completed"} <= cluster.reasons("train"))


async def test_failing_job_gives_up_and_deleted_pods_are_replaced(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1")
    await cluster.api.post(JOBS, job("broken", {"exits": "Failed"}, backoffLimit=1))
    await cluster.api.post(JOBS, job("steady"))
    await cluster.until("job failed", lambda: holds(cluster.one("jobs", "broken") or {}, "Failed"))
    assert cluster.one("jobs", "broken")["status"]["failed"] == 2
    await cluster.until("steady runs", lambda: running(cluster.pods_of("steady")))
    first = cluster.pods_of("steady")[0]["metadata"]
    await cluster.api.delete(f"{DEFAULT}/pods/{first['name']}")
    await cluster.until(
        "another pod runs",
        lambda: [p for p in running(cluster.pods_of("steady")) if p["metadata"]["uid"] != first["uid"]],
    )
    await cluster.until("counted", lambda: cluster.one("jobs", "steady")["status"].get("failed") == 1)
    await cluster.until("the first is gone", lambda: cluster.one("pods", first["name"]) is None)


@pytest.mark.parametrize("policy", ["Background", "Orphan"])
async def test_deleted_job_leaves_no_finalizer_behind(cluster: Cluster, policy: str) -> None:
    await cluster.kubelets.register("n1")
    await cluster.api.post(JOBS, job("train"))
    await cluster.until("runs", lambda: running(cluster.pods_of("train")))
    name = cluster.pods_of("train")[0]["metadata"]["name"]
    await cluster.api.delete(f"{JOBS}/train", {"propagationPolicy": policy})
    if policy == "Background":
        await cluster.until("pod gone", lambda: cluster.one("pods", name) is None)
    else:
        await cluster.until("pod freed", lambda: not cluster.one("pods", name)["metadata"].get("finalizers"))
        await cluster.until("job gone", lambda: cluster.one("jobs", "train") is None)


async def test_taint_keeps_work_away_until_it_goes(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1", gpus=8)
    await cluster.kubelets.register("n2", gpus=1)
    await add_taint(cluster, "n1", FAULTY)
    await cluster.until(
        "n1 ready and tainted", lambda: taints(cluster.one("nodes", "n1")) == {("faulty", "NoSchedule")}
    )
    await cluster.until("n2 ready", lambda: not taints(cluster.one("nodes", "n2")))
    await cluster.api.post(f"{DEFAULT}/pods", pod("canary", gpus=2))
    await cluster.until("reported", lambda: condition(cluster.one("pods", "canary") or {}, "PodScheduled"))
    scheduled = condition(cluster.one("pods", "canary"), "PodScheduled") or {}
    assert (scheduled["status"], scheduled["reason"]) == ("False", "Unschedulable")
    assert scheduled["message"] == (
        "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, "
        "1 node(s) had untolerated taint {trainy.konduktor.ai/faulty: true}."
    )
    await cluster.until("event", lambda: "FailedScheduling" in cluster.reasons("canary"))
    await drop_taint(cluster, "n1", FAULTY["key"])
    await cluster.until("bound to n1", lambda: cluster.one("pods", "canary")["spec"].get("nodeName") == "n1")
    assert holds(cluster.one("pods", "canary"), "PodScheduled") or running([cluster.one("pods", "canary")])
    await cluster.until("event", lambda: "Scheduled" in cluster.reasons("canary"))


async def test_higher_priority_goes_first(own_cluster: Cluster) -> None:
    await own_cluster.kubelets.register("n1", gpus=1)
    await own_cluster.until("n1 ready", lambda: not taints(own_cluster.one("nodes", "n1")))
    own_cluster.controllers.end()
    high = {"metadata": {"name": "high"}, "value": 100}
    await own_cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    for name, asked in (("low", {}), ("high", {"priorityClassName": "high"})):
        await own_cluster.api.post(f"{DEFAULT}/pods", pod(name, gpus=1, **asked))
    await asyncio.to_thread(own_cluster.controllers.start)
    await own_cluster.until("low waits", lambda: "FailedScheduling" in own_cluster.reasons("low"))
    await own_cluster.until("high is placed", lambda: own_cluster.one("pods", "high")["spec"].get("nodeName") == "n1")
    assert not own_cluster.one("pods", "low")["spec"].get("nodeName")


async def test_a_pod_that_would_preempt_others_says_that_it_does_not(cluster: Cluster) -> None:
    high = {"metadata": {"name": "high"}, "value": 100}
    await cluster.api.post("/apis/scheduling.k8s.io/v1/priorityclasses", high)
    for name, asked in (("modest", {"preemptionPolicy": "Never"}), ("pushy", {})):
        await cluster.api.post(f"{DEFAULT}/pods", pod(name, gpus=1, priorityClassName="high", **asked))
    said = {}
    for name in ("modest", "pushy"):
        await cluster.until(
            f"{name} waits", lambda name=name: condition(cluster.one("pods", name) or {}, "PodScheduled")
        )
        said[name] = condition(cluster.one("pods", name), "PodScheduled")["message"]
    assert said["modest"] == "no nodes available to schedule pods"
    assert said["pushy"].startswith(f"{said['modest']}. Preemption is not simulated by kubesim; `gameday lab up`")


async def test_daemonset_follows_nodes_and_template(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1", "n2", labels={"gpu": "true"})
    await cluster.kubelets.register("plain")
    spec = {"selector": {"matchLabels": {"app": "work"}}, "template": template(nodeSelector={"gpu": "true"})}
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "dmesg"}, "spec": spec}
    path = "/apis/apps/v1/namespaces/default/daemonsets"
    await cluster.api.post(path, owner)

    def ready(count: int, image: str) -> bool:
        status = (cluster.one("daemonsets", "dmesg") or {"status": {"desiredNumberScheduled": 0}})["status"]
        pods = running(cluster.pods_of("dmesg"))
        images = {p["spec"]["containers"][0]["image"] for p in pods}
        counts = [status.get("numberReady"), status["desiredNumberScheduled"], len(pods)]
        return counts == [count] * 3 and images == {image}

    await cluster.until("two pods", lambda: ready(2, "example/work:1"))
    await cluster.kubelets.register("n3", labels={"gpu": "true"})
    await cluster.until("a third", lambda: ready(3, "example/work:1"))
    assert {p["spec"]["nodeName"] for p in cluster.pods_of("dmesg")} == {"n1", "n2", "n3"}
    replace = [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "example/work:2"}]
    await cluster.api.patch(f"{path}/dmesg", replace, JSON_PATCH)
    await cluster.until("all replaced", lambda: ready(3, "example/work:2"))
    await cluster.until("counted", lambda: cluster.one("daemonsets", "dmesg")["status"]["updatedNumberScheduled"] == 3)


async def test_silent_node_is_tainted_and_cleared_without_touching_other_taints(own_cluster: Cluster) -> None:
    await own_cluster.kubelets.register("n1", "n2")
    await own_cluster.api.post(f"{DEFAULT}/pods", pod("worker", nodeSelector={"kubernetes.io/hostname": "n1"}))
    await own_cluster.until("worker runs", lambda: holds(own_cluster.one("pods", "worker") or {}, "Ready"))
    await add_taint(own_cluster, "n1", FAULTY)
    own_cluster.kubelets.silence("n1")
    lost = {("unreachable", "NoSchedule"), ("unreachable", "NoExecute")}
    await own_cluster.until(
        "tainted", lambda: taints(own_cluster.one("nodes", "n1")) == lost | {("faulty", "NoSchedule")}
    )
    ready = condition(own_cluster.one("nodes", "n1"), "Ready") or {}
    assert ready["reason"] == "NodeStatusUnknown"
    await own_cluster.until("its pod is not ready", lambda: not holds(own_cluster.one("pods", "worker"), "Ready"))
    await own_cluster.until("event", lambda: "NodeNotReady" in own_cluster.reasons("n1"))
    await own_cluster.kubelets.speak("n1")
    await own_cluster.until("cleared", lambda: taints(own_cluster.one("nodes", "n1")) == {("faulty", "NoSchedule")})
    await own_cluster.until("the other node is as it was", lambda: not taints(own_cluster.one("nodes", "n2")))


async def test_cordon_is_a_taint(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1")
    await cluster.api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": True}})
    await cluster.until("tainted", lambda: taints(cluster.one("nodes", "n1")) == {("unschedulable", "NoSchedule")})
    await cluster.api.patch("/api/v1/nodes/n1", {"spec": {"unschedulable": None}})
    await cluster.until("cleared", lambda: not taints(cluster.one("nodes", "n1")))


async def test_no_execute_moves_a_job_to_another_node(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1", "n2")
    tolerant = {"key": "gpu-lost", "operator": "Exists"}
    await cluster.api.post(JOBS, job("train", {"gpus": 8}))
    await cluster.until("runs", lambda: running(cluster.pods_of("train")))
    first = running(cluster.pods_of("train"))[0]
    where = first["spec"]["nodeName"]
    options = {"nodeSelector": {"kubernetes.io/hostname": where}, "tolerations": [tolerant]}
    await cluster.api.post(f"{DEFAULT}/pods", pod("tolerant", **options))
    await cluster.until("tolerant runs", lambda: running([cluster.one("pods", "tolerant")]))
    await add_taint(cluster, where, {"key": "gpu-lost", "effect": "NoExecute"})
    await cluster.until("moved", lambda: {p["spec"]["nodeName"] for p in running(cluster.pods_of("train"))} - {where})
    await cluster.until("said so", lambda: "TaintManagerEviction" in cluster.reasons(first["metadata"]["name"]))
    assert running([cluster.one("pods", "tolerant")])


async def test_budget_is_counted_and_guards_evictions(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1")
    await cluster.api.post(JOBS, job("train", parallelism=3, completions=3))
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "work"}}}
    budget = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"}, "spec": spec}
    await cluster.api.post("/apis/policy/v1/namespaces/default/poddisruptionbudgets", budget)

    def allowed() -> int | None:
        return ((cluster.one("budgets", "b") or {}).get("status") or {}).get("disruptionsAllowed")

    await cluster.until("one may go", lambda: allowed() == 1)
    status = cluster.one("budgets", "b")["status"]
    assert (status["expectedPods"], status["desiredHealthy"], status["currentHealthy"]) == (3, 2, 3)
    # A kubelet that does not answer keeps the first pod leaving, so the budget stays used up.
    cluster.kubelets.silence("n1")
    names = [p["metadata"]["name"] for p in cluster.pods_of("train")]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    await cluster.api.post(f"{DEFAULT}/pods/{names[0]}/eviction", {**eviction, "metadata": {"name": names[0]}})
    await cluster.until("none may go", lambda: allowed() == 0)
    with pytest.raises(ApiError) as caught:
        await cluster.api.post(f"{DEFAULT}/pods/{names[1]}/eviction", {**eviction, "metadata": {"name": names[1]}})
    assert caught.value.status == 429


async def test_pods_of_a_deleted_node_are_collected(cluster: Cluster) -> None:
    await cluster.kubelets.register("n1", "n2")
    await cluster.api.post(JOBS, job("train"))
    await cluster.until("runs", lambda: running(cluster.pods_of("train")))
    lost = cluster.pods_of("train")[0]
    where = lost["spec"]["nodeName"]
    cluster.kubelets.silence(where)
    await cluster.api.delete(f"/api/v1/nodes/{where}")
    await cluster.until("collected", lambda: cluster.one("pods", lost["metadata"]["name"]) is None)
    await cluster.until("runs elsewhere", lambda: running(cluster.pods_of("train")))


async def test_everything_goes_on_after_the_api_server_restarts(own_cluster: Cluster) -> None:
    await own_cluster.kubelets.register("n1")
    await own_cluster.until("n1 ready", lambda: not taints(own_cluster.one("nodes", "n1")))
    own_cluster.apiserver.end()
    await asyncio.sleep(1.25 * SHORT_GRACE_S)  # longer than a node may be silent: the time itself is the condition
    await asyncio.to_thread(own_cluster.apiserver.start)
    await own_cluster.api.post(JOBS, job("train", {"exits": "Succeeded"}))
    await own_cluster.until("job complete", lambda: holds(own_cluster.one("jobs", "train") or {}, "Complete"))
    assert not taints(await own_cluster.api.get("/api/v1/nodes/n1"))
    assert "NodeNotReady" not in own_cluster.reasons("n1"), "silence while the server was away is not the node's"


async def test_the_process_ends_quietly(own_cluster: Cluster) -> None:
    await own_cluster.kubelets.register("n1")
    assert await asyncio.to_thread(own_cluster.controllers.end) == 0
    assert "Traceback" not in own_cluster.controllers.log.read_text()
