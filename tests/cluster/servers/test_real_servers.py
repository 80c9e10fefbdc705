"""The adapters against the programs they are written for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from gameday.cluster.alertmanager import Alertmanager, Matcher
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from gameday.history.frames import frame_of
from gameday.observe import samples as observed_samples
from gameday.observe.samples import metrics_columns, read_samples

from .conftest import Answer, Observability, Stub, eventually


@pytest.fixture
def prometheus(observability: Observability) -> Iterator[Prometheus]:
    with Prometheus(Endpoint(url=observability.prometheus_url)) as client:
        yield client


@pytest.fixture
def alertmanager(observability: Observability) -> Iterator[Alertmanager]:
    with Alertmanager(Endpoint(url=observability.alertmanager_url)) as client:
        yield client


pytestmark = pytest.mark.slow


def expose(exporter: Stub, **broken: float | str) -> None:
    lines = [f'broken{{Hostname="{node}",gpu="3"}} {value}\n' for node, value in broken.items()]
    exporter.answers = [Answer(body="".join(lines).encode(), headers={"Content-Type": "text/plain; version=0.0.4"})]


def test_an_alert_is_followed_from_pending_to_resolved(
    exporter: Stub, prometheus: Prometheus, alertmanager: Alertmanager
) -> None:
    expose(exporter, n1=0)
    eventually(lambda: prometheus.query("broken"), bool)
    quiet = prometheus.rule("Broken")
    assert quiet is not None
    assert (quiet.state, quiet.hold_s, quiet.health, quiet.alerts) == ("inactive", 1.0, "ok", ())
    assert prometheus.rule("NoSuchRule") is None

    before = datetime.now(UTC)
    expose(exporter, n1=1)
    states = []

    def firing() -> bool:
        rule = prometheus.rule("Broken")
        assert rule is not None
        states.append(rule.state)
        return rule.state == "firing"

    eventually(firing, bool)
    assert "pending" in states
    rule = prometheus.rule("Broken")
    assert rule is not None
    (alert,) = rule.alerts
    assert alert.labels["node"] == "n1"
    assert alert.annotations == {"summary": "n1 is broken"}
    assert before < alert.active_at < datetime.now(UTC)
    assert [(a.name, a.state) for a in prometheus.alerts()] == [("Broken", "firing")]

    wanted = [Matcher(name="alertname", value="Broken"), Matcher(name="node", value="n1|n2", is_regex=True)]
    (notified,) = eventually(lambda: alertmanager.alerts(wanted), bool)
    assert (notified.name, notified.labels["node"], notified.status.state) == ("Broken", "n1", "active")
    assert notified.receivers == ("gameday",)
    assert not notified.silenced
    # Prometheus dates the alert from firing, one `for` after it became active; Alertmanager cuts to milliseconds.
    assert notified.starts_at - alert.active_at > timedelta(seconds=rule.hold_s) - timedelta(milliseconds=1)
    assert notified.ends_at > notified.updated_at
    assert alertmanager.alerts([Matcher(name="node", value='n9"\\')]) == []
    assert alertmanager.alerts([Matcher(name="node", value="n1", is_equal=False)]) == []

    _silence(alertmanager)
    (silenced,) = eventually(lambda: alertmanager.alerts(wanted), lambda alerts: alerts[0].silenced)
    assert silenced.status.state == "suppressed"
    (silence,) = alertmanager.silences()
    assert (silence.status.state, silence.created_by, silence.matchers[0].name) == ("active", "test", "node")

    expose(exporter, n1=0)
    eventually(prometheus.alerts, lambda alerts: not alerts)
    eventually(lambda: alertmanager.alerts(wanted), lambda alerts: not alerts)


def _silence(alertmanager: Alertmanager) -> None:
    now = datetime.now(UTC)
    body = {
        "matchers": [{"name": "node", "value": "n1", "isRegex": False, "isEqual": True}],
        "startsAt": now.isoformat(),
        "endsAt": (now + timedelta(minutes=5)).isoformat(),
        "createdBy": "test",
        "comment": "a test",
    }
    url = f"{alertmanager.http.endpoint.url}/api/v2/silences"
    httpx.post(url, json=body, trust_env=False).raise_for_status()


def test_a_range_becomes_a_frame_without_nan(exporter: Stub, prometheus: Prometheus) -> None:
    expose(exporter, n2=7, n3="NaN")
    eventually(lambda: prometheus.query('broken{Hostname="n3"}'), bool)
    now = datetime.now(UTC)
    series = prometheus.query_range(
        'broken{Hostname=~"n2|n3"}', now - timedelta(seconds=10), now, timedelta(milliseconds=200)
    )
    frame = frame_of("metrics", metrics_columns(series, node_label="Hostname"))
    assert set(frame["node"]) == {"n2"}, "a NaN is no observation"
    assert set(frame["gpu"]) == {"3"}
    assert set(frame["metric"]) == {"broken"}
    assert set(frame["value"]) == {7.0}
    assert str(frame["time"].dtype) == "datetime64[ns, UTC]"
    assert frame["time"].is_monotonic_increasing
    assert frame_of("metrics", metrics_columns([], node_label="Hostname")).empty


def test_samples_are_read_as_they_are_stored_and_resampled_only_where_there_are_too_many(
    exporter: Stub, observability: Observability, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpus = [f'{{name}}{{{{Hostname="n4",gpu="{gpu}"}}}} 1\n' for gpu in range(2)]
    body = "".join(line.format(name=name) for name in ("power", "heat") for line in gpus)
    exporter.answers = [Answer(body=body.encode(), headers={"Content-Type": "text/plain; version=0.0.4"})]
    counter = CallCounter()
    with Prometheus(Endpoint(url=observability.prometheus_url), counter) as prometheus:
        eventually(lambda: prometheus.query('count_over_time(heat{gpu="1"}[1m]) > 9'), bool)
        end, window, asked = datetime.now(UTC), timedelta(seconds=2), counter.cost().requests
        found = read_samples(prometheus, ("power", "heat", "no_such_metric"), 'Hostname="n4"', end - window, end)
        assert (found.step_s, counter.cost().requests - asked) == (None, 2)
        assert {(one.name, one.labels["gpu"]) for one in found.series} == {
            (name, gpu) for name in ("power", "heat") for gpu in "01"
        }
        counted = {round(sample.value) for sample in prometheus.query('count_over_time(heat{Hostname="n4"}[2s])', end)}
        assert {len(one.points) for one in found.series} == counted, "no scrape comes twice"
        samples = sum(len(one.points) for one in found.series)

        monkeypatch.setattr(observed_samples, "MOST_SAMPLES", samples // 2)
        fewer = read_samples(prometheus, ("power", "heat"), 'Hostname="n4"', end - window, end)
        assert fewer.step_s is not None
        assert len(fewer.series) == 4
        assert sum(len(one.points) for one in fewer.series) < samples


def test_instant_queries_return_scalars_vectors_and_errors(exporter: Stub, prometheus: Prometheus) -> None:
    (scalar,) = prometheus.query("scalar(vector(4))")
    assert (scalar.value, scalar.labels) == (4.0, {})
    (infinite,) = prometheus.query("vector(1) / 0", at=datetime(2024, 5, 1, tzinfo=UTC))
    assert (infinite.value, infinite.at) == (float("inf"), datetime(2024, 5, 1, tzinfo=UTC))
    assert prometheus.query("no_such_metric") == []
    with pytest.raises(AdapterError, match=r"/api/v1/query: 400: .*parse error") as raised:
        prometheus.query("broken{{")
    assert raised.value.status == 400


def test_the_versions_of_the_servers_are_read(prometheus: Prometheus, alertmanager: Alertmanager) -> None:
    assert prometheus.build_info().version[0].isdigit()
    assert alertmanager.status().version_info.version[0].isdigit()


def test_every_call_is_counted_by_its_name(observability: Observability) -> None:
    counter = CallCounter()
    with Prometheus(Endpoint(url=observability.prometheus_url), counter) as client:
        client.query("vector(1)")
        client.query("vector(2)")
        client.build_info()
    cost = counter.cost()
    assert (cost.requests, cost.by_call) == (3, {"GET api/v1/query": 2, "GET api/v1/status/buildinfo": 1})
    assert cost.bytes_received > 300
    assert cost.bytes_sent > 300
