"""Whether a rule can fire, asked of a real Prometheus that scrapes one exporter."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.guard.rule_series import RuleSeries
from gameday_rehearsal.observability import ScrapeJob, prometheus_program
from tests.cluster.servers.conftest import Answer, Stub, _start, eventually
from tests.support.ports import free_ports

EXPOSED = """\
# TYPE there gauge
there{node="n1"} 1
# HELP with_the_first_fault The exporter tells of it and has no value yet.
# TYPE with_the_first_fault gauge
# TYPE faults counter
# TYPE delay histogram
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{gpu="0"} 40
"""
RULES = """\
groups:
  - name: test
    interval: 200ms
    rules:
      - {record: 'of:nothing', expr: nowhere > 0}
      - {record: 'of:something', expr: there > 100}
      - {record: 'of:itself', expr: 'nowhere or of:itself'}
      - {record: 'twice', expr: nowhere}
      - {record: 'twice', expr: there > 100}
      - {alert: Two, expr: nowhere > 0}
      - {alert: Two, expr: there > 100}
"""


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    folder, exporter = tmp_path_factory.mktemp("prometheus"), Stub()
    exporter.answers = [Answer(body=EXPOSED.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})]
    rules = folder / "rules.yaml"
    rules.write_text(RULES)
    port, nobody = free_ports(2)
    jobs = [ScrapeJob("exporter", exporter.address, 0.2)]
    program = prometheus_program(folder, port=port, nodes=1, jobs=jobs, alertmanager_port=nobody, rule_files=[rules])
    running: subprocess.Popen[bytes] = _start(program)
    try:
        with Prometheus(Endpoint(url=f"http://127.0.0.1:{port}")) as client:
            eventually(lambda: client.query("there"), bool)
            eventually(lambda: client.exposes("with_the_first_fault"), bool)
            yield client
    finally:
        running.terminate()
        running.wait(20)
        exporter.close()


@pytest.mark.parametrize(
    "query",
    [
        "there > 100",
        "absent(nowhere)",
        "nowhere or there > 100",
        "there unless nowhere",
        'ALERTS{alertname="X"}',
        "of:something",
        "twice",
    ],
)
def test_a_rule_whose_series_are_there_can_fire(prometheus: Prometheus, query: str) -> None:
    found = RuleSeries(prometheus).check([query])
    assert (found.can_fire, found.why) == (True, "")


@pytest.mark.parametrize(
    ("query", "metric"),
    [
        ("nowhere > 0", "nowhere"),
        ("there and nowhere", "nowhere"),
        ("nowhere / there", "nowhere"),
        ("of:nothing == 1", "nowhere"),
        ("of:itself", "nowhere"),
    ],
)
def test_a_rule_that_reads_what_nobody_exposes_can_never_fire(prometheus: Prometheus, query: str, metric: str) -> None:
    found = RuleSeries(prometheus).check([query])
    assert found.can_fire is False
    assert f"no series of metric {metric}," in found.why
    assert found.fix


@pytest.mark.parametrize(
    ("query", "fix"),
    [
        ("kube_node_spec_taint == 1", "scrape kube-state-metrics"),
        ('gameday_health_gpu_fault_active{code="79"} == 1', "scrape the node-health controller"),
        ("DCGM_FI_DEV_NVSWITCH_FATAL_ERRORS > 0", "deploy/alerts/dcgm-counters.csv"),
    ],
)
def test_what_to_do_is_about_the_exporter_that_has_the_metric(prometheus: Prometheus, query: str, fix: str) -> None:
    found = RuleSeries(prometheus).check([query])
    assert found.can_fire is False
    assert fix in found.fix


@pytest.mark.parametrize(
    "query",
    [
        "with_the_first_fault > 0",
        'there{node="n2"} > 0',
        "increase(faults_total[5m]) > 0",
        "histogram_quantile(0.9, rate(delay_bucket[5m])) > 1",
    ],
)
def test_a_series_that_the_fault_itself_brings_is_no_fault_of_the_rule(prometheus: Prometheus, query: str) -> None:
    found = RuleSeries(prometheus).check([query])
    assert found.can_fire is True
    assert "a fault can make one" in found.why


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("DCGM_FI_DEV_XID_ERRORS > 0", "some exporters make it with the first fault only"),
        ('{job="nobody"} > 0', 'no series of {job="nobody"} now'),
    ],
)
def test_a_rule_of_unknown_state_is_not_called_broken(prometheus: Prometheus, query: str, says: str) -> None:
    found = RuleSeries(prometheus).check([query])
    assert found.can_fire is None
    assert says in found.why
    assert found.fix


def test_of_rules_that_share_a_name_one_that_can_fire_is_enough(prometheus: Prometheus) -> None:
    eventually(lambda: prometheus.queries("Two"), lambda queries: len(queries) == 2)
    assert RuleSeries(prometheus).check(prometheus.queries("Two")).can_fire is True


def test_a_server_without_metadata_of_targets_leaves_it_open(stub: Stub) -> None:
    empty = b'{"status": "success", "data": {"resultType": "vector", "result": [], "groups": []}}'
    stub.answers = [Answer(body=empty), Answer(body=empty), Answer(status=404)]
    with Prometheus(Endpoint(url=stub.url)) as client:
        found = RuleSeries(client).check(["nowhere"])
    assert found.can_fire is None
    assert "keeps no metadata" in found.why


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()
    yield server
    server.close()
