"""The sources of signals against real servers: the API server, the log store, Prometheus and Alertmanager."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from gameday_rehearsal.observability import alertmanager_program
from tests.cluster.servers.conftest import Answer, Observability, Stub, exporter, observability
from tests.health.conftest import LOST, Cluster, Servers, a_cluster, await_handled, await_taint, eventually, stamped
from tests.health.signals import written
from tests.support.ports import free_ports
from tests.support.tailless import tailless

pytestmark = pytest.mark.slow  # each starts a controller and servers of its own

__all__ = ["exporter", "observability"]


@pytest.fixture
def cluster(servers: Servers, tmp_path: Path) -> Iterator[Cluster]:
    # Nothing listens on port 1: metrics and alerts are away, and everything else works all the same.
    away = "http://127.0.0.1:1"
    options = ("--policy", str(written(tmp_path)), "--prometheus-url", away, "--alertmanager-url", away)
    with a_cluster(servers, *options) as made:
        made.add_node("n1")
        made.add_node("n2")
        made.health.start()
        yield made


def restart(cluster: Cluster) -> None:
    cluster.health.stop(kill=True)
    cluster.health.start()


def return_node(cluster: Cluster) -> None:
    cluster.patch_node("n1", {"spec": {"taints": []}})
    eventually(lambda: cluster.reason("n1") is None)


def stays_in_service(cluster: Cluster) -> None:
    restart(cluster)
    await_handled(cluster)
    assert cluster.taints("n1") == []


def set_condition(cluster: Cluster, status: str) -> None:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "GpuUnhealthy", "status": status, "reason": "DoubleBit", "lastTransitionTime": stamp}
    path = f"/api/v1/nodes/{cluster.named('n1')}/status"
    cluster.api.request("PATCH", path, {"status": {"conditions": [condition]}})


def test_a_condition_taints_and_does_not_after_the_return_though_it_still_holds(cluster: Cluster) -> None:
    set_condition(cluster, "True")
    await_taint(cluster)
    reason = cluster.reason("n1")
    assert reason is not None
    assert (reason["kind"], reason["name"]) == ("condition", "GpuUnhealthy")
    return_node(cluster)
    stays_in_service(cluster)


def write_event(cluster: Cluster, reason: str, component: str = "somebody") -> None:
    stamp = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body: dict[str, Any] = {
        "metadata": {"generateName": "event-", "namespace": "default"},
        "involvedObject": {"apiVersion": "v1", "kind": "Node", "name": cluster.named("n1")},
        "reason": reason,
        "message": "a test's",
        "type": "Warning",
        "firstTimestamp": stamp,
        "lastTimestamp": stamp,
        "source": {"component": component},
    }
    cluster.api.request("POST", "/api/v1/namespaces/default/events", body)


def test_an_event_taints_and_is_not_read_again_after_the_return(cluster: Cluster) -> None:
    write_event(cluster, "GpuFellOff", "gameday-health")
    write_event(cluster, "SomethingElse")
    await_handled(cluster)
    assert cluster.taints("n1") == [], "our own Events are no signals"
    write_event(cluster, "GpuFellOff")
    await_taint(cluster)
    return_node(cluster)
    stays_in_service(cluster)


def push_pod_line(cluster: Cluster, text: str, namespace: str = "training", age_s: float = 0) -> None:
    stream = {"k8s_namespace_name": namespace, "k8s_pod_name": "train-0", "k8s_node_name": cluster.named("n1")}
    at_ns = time.time_ns() - int(age_s * 1e9)
    body = {"streams": [{"stream": stream, "values": [[str(at_ns), text]]}]}
    assert cluster.http.post(f"{cluster.loki}/loki/api/v1/push", json=body).status_code == 204


def test_a_line_of_a_pod_taints_and_is_not_read_again_after_the_return(cluster: Cluster) -> None:
    push_pod_line(cluster, "CUDA error: invalid device ordinal", "elsewhere")
    push_pod_line(cluster, "all is well")
    await_handled(cluster)
    assert cluster.taints("n1") == []
    push_pod_line(cluster, "[rank3] RuntimeError: CUDA error: invalid device ordinal")
    await_taint(cluster)
    return_node(cluster)
    stays_in_service(cluster)


def test_a_line_of_a_pod_in_an_outage_is_found_after_it(cluster: Cluster) -> None:
    await_handled(cluster)
    cluster.health.stop(kill=True)
    cluster.logs.stop()
    cluster.logs.start()
    push_pod_line(cluster, "NCCL WARN Cuda failure", age_s=30)
    cluster.health.start()
    await_taint(cluster)


def test_a_source_that_is_away_is_shown_and_stops_no_other(cluster: Cluster) -> None:
    assert eventually(lambda: cluster.metric("source_up", source="metric") == 0)
    assert eventually(lambda: cluster.metric("source_up", source="alert") == 0)
    push_pod_line(cluster, "NCCL WARN Cuda failure")
    await_taint(cluster)


@pytest.mark.slow
def test_alerts_and_metrics_of_real_servers_taint_once(
    servers: Servers, tmp_path: Path, observability: Observability, exporter: Stub
) -> None:
    text = written(tmp_path).read_text(encoding="utf-8").replace("GPUHot", "Broken")
    file = tmp_path / "signals.yaml"
    file.write_text(text, encoding="utf-8")
    urls = ("--prometheus-url", observability.prometheus_url, "--alertmanager-url", observability.alertmanager_url)
    with a_cluster(servers, "--policy", str(file), *urls) as cluster:
        cluster.add_node("n1")
        cluster.add_node("n2")
        series = f'broken{{Hostname="{cluster.named("n1")}",pci_bus_id="00000000:4E:00.0"}} 1\n'
        exporter.answers[:] = [Answer(body=series.encode(), headers={"Content-Type": "text/plain"})]
        cluster.health.start()
        eventually(lambda: (cluster.reason("n1") or {}).get("kind") in ("alert", "metric"), 90)
        kinds = {"alert", "metric"}
        eventually(lambda: all(cluster.metric("signals_total", kind=kind) for kind in kinds), 90)
        return_node(cluster)
        restart(cluster)
        for kind in kinds:
            eventually(lambda kind=kind: cluster.metric("ignored_signals_total", kind=kind, why="before return"), 90)
        assert cluster.taints("n1") == [], "both still hold, and both began before the return"


def test_a_store_behind_a_proxy_without_a_tail_is_read_all_the_same(servers: Servers) -> None:
    servers.start()
    with tailless(servers.loki, 502) as proxy, a_cluster(servers, "--loki-url", proxy.url) as cluster:
        cluster.add_node("n1")
        cluster.health.start()
        assert cluster.metric("log_stream_connected", by="range") == 1
        assert cluster.metric("log_stream_connected", by="tail") == 0
        cluster.push(stamped(LOST))
        await_taint(cluster)


def test_an_alert_among_thousands_of_its_group_reaches_a_node(servers: Servers, tmp_path: Path) -> None:
    webhook_port, alertmanager_port = free_ports(2)
    url = f"http://127.0.0.1:{webhook_port}/alerts"
    program = alertmanager_program(tmp_path, port=alertmanager_port, webhook_url=url)
    config = tmp_path / "alertmanager.yml"
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    settings["route"] |= {"group_by": ["severity"], "group_wait": "2s"}
    config.write_text(yaml.safe_dump(settings), encoding="utf-8")
    options = (
        "--policy",
        str(written(tmp_path)),
        "--alert-port",
        str(webhook_port),
        "--prometheus-url",
        "http://127.0.0.1:1",
    )
    alertmanager = subprocess.Popen(program.argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        with a_cluster(servers, *options) as cluster:
            cluster.add_node("n1")
            cluster.health.start()
            labels = [{"alertname": "Other", "severity": "critical", "pod": f"p{number}"} for number in range(2500)]
            labels.append({"alertname": "GPUHot", "severity": "critical", "node": cluster.named("n1")})
            alerts = [{"labels": one, "annotations": {"description": "d" * 600}} for one in labels]
            url = f"http://127.0.0.1:{alertmanager_port}/api/v2/alerts"
            eventually(lambda: _is_taken(cluster, url, alerts))
            await_taint(cluster)
            assert (cluster.reason("n1") or {})["name"] == "GPUHot"
    finally:
        alertmanager.terminate()
        alertmanager.wait(20)


def _is_taken(cluster: Cluster, url: str, alerts: list[dict[str, Any]]) -> bool:
    try:
        return cluster.http.post(url, json=alerts).status_code == 200
    except httpx.TransportError:
        return False
