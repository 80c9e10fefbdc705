"""A real Prometheus behind the service proxy: rules that can fire, rules that never can, and their alerts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import AdapterError
from gameday_prove.monitoring import alerts_now, find_alertmanager, find_prometheus, is_about
from gameday_rehearsal.observability import ScrapeJob, prometheus_program
from tests.cluster.servers.conftest import Answer, Stub, _start, eventually
from tests.prove.proxying import ProxyingServer
from tests.support.ports import free_ports
from tests.support.world import World

RULES = """\
groups:
  - name: gpus
    interval: 200ms
    rules:
      - {alert: GPUBroken, expr: 'gpu_errors{node="gpu-1"} > 0', labels: {severity: critical}}
      - {alert: GPUOfAnotherCluster, expr: 'gpu_errors{cluster="old"} > 0'}
      - {alert: GPUOfNoExporter, expr: 'sum by (node) (dcgm_gone{x="y"}) > 0 and on(node) gpu_errors > 0'}
      - {alert: GPUTainted, expr: 'kube_node_spec_taint{key="x"} == 1'}
      - {alert: Other, expr: 'up == 2'}
"""
SERVICES = [
    {
        "metadata": {"name": "prometheus-operated", "namespace": "monitoring"},
        "spec": {"ports": [{"name": "http-web", "port": 9090}]},
    },
    {"metadata": {"name": "prometheus-node-exporter", "namespace": "m"}, "spec": {"ports": [{"port": 9090}]}},
]


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    (folder / "rules.yaml").write_text(RULES)
    exporter = Stub()
    exporter.answers = [Answer(body=b'gpu_errors{node="gpu-1"} 1\n', headers={"Content-Type": "text/plain"})]
    ports = free_ports(2)
    job = ScrapeJob("dcgm-exporter", exporter.address, 0.2)
    program = prometheus_program(
        folder, port=ports[0], nodes=1, jobs=[job], alertmanager_port=ports[1], rule_files=[folder / "rules.yaml"]
    )
    process = _start(program)
    yield f"http://127.0.0.1:{ports[0]}"
    process.terminate()
    process.wait(20)
    exporter.close()


@pytest.fixture
def kubernetes(world: World, tmp_path: Path, prometheus: str) -> Iterator[Kubernetes]:
    front = ProxyingServer(tmp_path, world.admin_kubeconfig, prometheus)
    found = Kubernetes(world.profile(front.kubeconfig))
    yield found
    found.close()
    front.end()


def test_rules_that_never_can_fire_are_told_from_those_that_can(kubernetes: Kubernetes) -> None:
    def firing() -> bool:
        found = find_prometheus(kubernetes, SERVICES)
        return bool(found and "GPUBroken" in found.firing)

    eventually(firing, bool)
    found = find_prometheus(kubernetes, SERVICES)
    assert found and (found.service, found.all_rules) == ("monitoring/prometheus-operated", 5)
    never = {rule.name: rule.never for rule in found.rules}
    assert never == {
        "GPUBroken": "",
        "GPUOfAnotherCluster": 'gpu_errors has series, but none that fits gpu_errors{cluster="old"}',
        "GPUOfNoExporter": "there is no series of dcgm_gone: nothing here exports it",
        "GPUTainted": "",
    }
    (alert,) = alerts_now(kubernetes, found)
    assert is_about(alert, "gpu-1") and not is_about(alert, "gpu-2") and not is_about(alert, "gpu")


def test_a_cluster_without_prometheus_has_none(kubernetes: Kubernetes) -> None:
    assert find_prometheus(kubernetes, SERVICES[1:]) is None
    assert find_alertmanager(kubernetes, SERVICES) == ""


def test_a_service_that_answers_otherwise_is_an_error(kubernetes: Kubernetes) -> None:
    other = {"metadata": {"name": "my-prometheus", "namespace": "nowhere"}, "spec": {"ports": [{"port": 9090}]}}
    with pytest.raises(AdapterError):
        find_prometheus(kubernetes, [other])
