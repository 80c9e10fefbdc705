"""Every signal beside the kernel log: to the taint once, and never again to a node that was returned after it."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from prometheus_client import CollectorRegistry

from gameday.cluster.alert_receiver import LARGEST_BODY_BYTES, ReceiverOptions, Trouble
from gameday.cluster.alertmanager import Alertmanager, NotifiedAlert
from gameday.cluster.json_api import JsonApi
from gameday.cluster.loki import LogStore
from gameday.cluster.prometheus import Series
from gameday.errors import AdapterError
from gameday.xid.catalogue import Remedy
from gameday.xid.lines import format_xid
from gameday_health.metrics import Metrics
from gameday_health.model import REASON, NodeView, Taint, read_reason
from gameday_health.policy import Policy
from gameday_health.policy_files import load_policy
from gameday_health.signal import Signal, SignalKind
from gameday_health.sources.alerts import AlertPoll, AlertWebhook
from gameday_health.sources.base import pci_address
from gameday_health.sources.build import Servers, build_sources
from gameday_health.sources.metrics import MetricPoll
from gameday_health.sources.pod_logs import pod_log_query
from gameday_health.worker import Options, Worker
from tests.health.conftest import KEY
from tests.health.signals import PCI, policy, signal, written
from tests.health.test_restarts import DictApi, at_every_crash, detection

KINDS = [SignalKind.ALERT, SignalKind.EVENT, SignalKind.METRIC, SignalKind.POD_LOG]


@pytest.fixture
def options(tmp_path: Path) -> Options:
    return Options(policy(tmp_path), Taint.parse(f"{KEY}=true:NoSchedule"), "{}", "node", "gameday")


def start(api: DictApi, options: Options, *signals: Signal, metrics: Metrics | None = None) -> Worker:
    """Start a controller, to which the sources bring these signals."""
    worker = Worker(api, options, metrics or Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    worker.load()
    show(worker, api)
    worker.all_nodes_known()
    for each in signals:
        worker.handle_signal(each)
        worker.write_due()
    return worker


def show(worker: Worker, api: DictApi) -> None:
    """Let the watch show the node as it is."""
    worker.handle_node(NodeView.of(api.node, {"GpuUnhealthy"}))
    worker.write_due()


def give_back(worker: Worker, api: DictApi) -> None:
    api.untaint()
    show(worker, api)


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_taints_its_node_and_the_reason_names_it(options: Options, kind: SignalKind) -> None:
    api = DictApi()
    start(api, options, signal(kind))
    assert api.is_tainted()
    reason = read_reason(api.node["metadata"]["annotations"][REASON])
    assert reason is not None
    assert (reason.kind, reason.code, reason.policy) == (kind, None, "signals")
    assert reason.name == ("a-pods-line" if kind is SignalKind.POD_LOG else signal(kind).name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_duplicate_has_no_second_effect(options: Options, kind: SignalKind) -> None:
    api, metrics = DictApi(), Metrics(CollectorRegistry())
    one = signal(kind)
    start(api, options, one, one, metrics=metrics)
    version = api.node["metadata"]["resourceVersion"]
    start(api, options, one, metrics=metrics)
    assert api.node["metadata"]["resourceVersion"] == version
    assert metrics.registry.get_sample_value("gameday_health_ignored_signals_total", {"kind": kind, "why": "repeated"})


@pytest.mark.parametrize("kind", KINDS)
def test_a_signal_of_before_the_return_never_taints_again(options: Options, kind: SignalKind) -> None:
    api = DictApi()
    old, late = signal(kind, 5), signal(kind, 3)
    worker = start(api, options, old)
    give_back(worker, api)
    for again in (worker, start(api, options)):
        for each in (old, late):
            again.handle_signal(each)
            again.write_due()
        assert not api.is_tainted()
    assert REASON not in api.node["metadata"]["annotations"]
    start(api, options, signal(kind))
    assert api.is_tainted(), "what happens after the return counts"


@pytest.mark.parametrize("kind", KINDS)
def test_a_node_returned_while_nobody_looked_is_not_tainted_by_what_is_still_shown(
    options: Options, kind: SignalKind
) -> None:
    api = DictApi()
    one = signal(kind, 5)
    start(api, options, one)
    api.untaint()
    start(api, options, one, signal(kind, 2))
    assert not api.is_tainted()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_before_any_write_loses_no_signal_and_repeats_none(options: Options, kind: SignalKind) -> None:
    one = signal(kind, 1)

    def run(api: DictApi) -> None:
        start(api, options, one).save(immediately=True)

    states = at_every_crash(run)
    assert len(states) >= 2
    for api in states:
        worker = start(api, options, one)
        assert api.is_tainted()
        give_back(worker, api)
        start(api, options, one)
        assert not api.is_tainted()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_in_the_return_does_not_taint_again(options: Options, kind: SignalKind) -> None:
    one = signal(kind, 1)
    tainted: dict[int, Worker] = {}

    def prepare(api: DictApi) -> None:
        tainted[id(api)] = start(api, options, one)

    def run(api: DictApi) -> None:
        give_back(tainted[id(api)], api)

    for api in at_every_crash(run, prepare):
        start(api, options, one)
        assert not api.is_tainted()


def test_a_clock_that_is_ahead_does_not_outlive_the_return(options: Options) -> None:
    api = DictApi()
    ahead = replace(signal(SignalKind.EVENT), at=datetime.now(UTC) + timedelta(minutes=5), key="00" * 8)
    worker = start(api, options, replace(ahead, key="11" * 8))
    give_back(worker, api)
    worker.handle_signal(replace(ahead, seen=datetime.now(UTC) - timedelta(seconds=1)))
    worker.write_due()
    assert not api.is_tainted()


def test_a_signal_of_a_node_that_joins_later_is_kept_for_it(options: Options) -> None:
    api = DictApi()
    worker = Worker(api, options, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    worker.load()
    worker.all_nodes_known()
    worker.handle_signal(signal(SignalKind.EVENT))
    show(worker, api)
    assert api.is_tainted()


def test_a_watched_signal_quarantines_at_the_second_sighting_that_is_no_burst(options: Options) -> None:
    api = DictApi()
    start(api, options, signal(SignalKind.ALERT, 600, "GPUWarm"), signal(SignalKind.ALERT, 590, "GPUWarm")).save(
        immediately=True
    )
    assert not api.is_tainted(), "two alerts of one burst are one sighting"
    start(api, options, signal(SignalKind.ALERT, 60, "GPUWarm"))
    assert api.is_tainted(), "sightings are kept over a restart"


def test_a_watched_signal_outside_the_window_does_not_count(options: Options) -> None:
    api = DictApi()
    start(api, options, signal(SignalKind.ALERT, 4000, "GPUWarm"), signal(SignalKind.ALERT, 60, "GPUWarm"))
    assert not api.is_tainted()


def test_sightings_before_a_return_do_not_count_after_it(options: Options) -> None:
    api = DictApi()
    worker = start(api, options, signal(SignalKind.ALERT, 600, "GPUWarm"), signal(SignalKind.ALERT, 100, "GPUWarm"))
    assert api.is_tainted()
    give_back(worker, api)
    start(api, options, signal(SignalKind.ALERT, 0, "GPUWarm"))
    assert not api.is_tainted()


def with_condition(api: DictApi, status: str, age_s: float, reason: str = "DoubleBit") -> None:
    since = (datetime.now(UTC) - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "GpuUnhealthy", "status": status, "reason": reason, "lastTransitionTime": since}
    api.node["status"]["conditions"] = [{"type": "Ready", "status": "True"}, condition]
    api.node["metadata"]["resourceVersion"] = str(int(api.node["metadata"]["resourceVersion"]) + 1)


def test_a_condition_taints_once_and_not_after_the_return(options: Options) -> None:
    api = DictApi()
    with_condition(api, "False", 100)
    worker = start(api, options)
    assert not api.is_tainted()
    with_condition(api, "True", 50, "Warming")
    show(worker, api)
    assert not api.is_tainted(), "the rule names another reason"
    with_condition(api, "True", 50)
    show(worker, api)
    assert api.is_tainted()
    give_back(worker, api)
    start(api, options)
    assert not api.is_tainted(), "it still holds, but it began before the return"
    with_condition(api, "False", 0)
    again = start(api, options)
    with_condition(api, "True", -2)
    show(again, api)
    assert api.is_tainted(), "it ended and began again"


def test_a_condition_whose_reason_and_time_change_has_not_ended(options: Options) -> None:
    api = DictApi()
    with_condition(api, "True", 50)
    worker = start(api, options)
    assert api.is_tainted()
    give_back(worker, api)
    for reason, age_s in (("Warming", -2), ("DoubleBit", -3), ("Warming", -4), ("DoubleBit", -5)):
        with_condition(api, "True", age_s, reason)
        show(worker, api)
        assert not api.is_tainted(), "two checkers write one condition in turns"
    worker.save(immediately=True)
    with_condition(api, "True", -6)
    worker = start(api, options)
    assert not api.is_tainted(), "nor for a controller that has just started"
    with_condition(api, "False", -7, "Healthy")
    show(worker, api)
    with_condition(api, "True", -8)
    show(worker, api)
    assert api.is_tainted(), "the status has ended and begun again"


def test_a_condition_that_never_ends_is_no_second_sighting(tmp_path: Path, options: Options) -> None:
    text = written(tmp_path).read_text(encoding="utf-8")
    text = text.replace("alert: {names: [GPUWarm]}", "condition: {type: GpuWarm}")
    (tmp_path / "signals.yaml").write_text(text, encoding="utf-8")
    watching = replace(options, policy=load_policy(str(tmp_path / "signals.yaml")).policy)
    api = DictApi()
    worker = Worker(api, watching, Metrics(CollectorRegistry()))  # type: ignore[arg-type]
    worker.load()
    for age_s in (400, 300, 200, 100):
        with_condition(api, "True", age_s, f"For{age_s}")
        api.node["status"]["conditions"][1]["type"] = "GpuWarm"
        worker.handle_node(NodeView.of(api.node, {"GpuWarm"}))
        worker.write_due()
    assert not api.is_tainted()


class FakePrometheus:
    """A Prometheus whose series have points at the steps that `broken` and `up` allow."""

    def __init__(self) -> None:
        self.broken: Callable[[datetime], bool] = lambda _: False
        self.up: Callable[[datetime], bool] = lambda _: True
        self.is_away = False

    def query_range(self, promql: str, start: datetime, end: datetime, step: timedelta) -> list[Series]:
        if self.is_away:
            raise AdapterError("prometheus", "no answer")
        wanted = self.up if promql == "count(up)" else lambda at: self.up(at) and self.broken(at)
        moments = [start + number * step for number in range((end - start) // step + 1)]
        points = tuple((at, 1.0) for at in moments if wanted(at))
        labels = {} if promql == "count(up)" else {"Hostname": "n1", "pci_bus_id": "00000000:4E:00.0"}
        return [Series("broken", labels, points)] if points else []


def metric_poll(prometheus: FakePrometheus, policy: Policy, signals: list[Signal], since_s: float = 600) -> MetricPoll:
    since = datetime.now(UTC) - timedelta(seconds=since_s)

    def take(found: Signal) -> bool:
        signals.append(found)
        return True

    return MetricPoll(prometheus, policy, int(since.timestamp() * 1e9), take, lambda _: None)  # type: ignore[arg-type]


def between(first_s: float, last_s: float = 0.0) -> Callable[[datetime], bool]:
    now = datetime.now(UTC)
    return lambda at: now - timedelta(seconds=first_s) <= at <= now - timedelta(seconds=last_s)


def test_a_series_is_a_signal_from_its_first_point_on_and_is_brought_once(tmp_path: Path) -> None:
    prometheus, signals = FakePrometheus(), list[Signal]()
    prometheus.broken = between(300)
    poll = metric_poll(prometheus, policy(tmp_path), signals)
    poll.poll()
    poll.poll()
    (one,) = signals
    assert (one.node, one.name, one.gpu, one.is_begin_known) == ("n1", "a-metric", PCI, True)
    assert 280 < (datetime.now(UTC) - one.at).total_seconds() < 305
    again = list[Signal]()
    metric_poll(prometheus, policy(tmp_path), again).poll()
    assert [(found.key, found.at) for found in again] == [(one.key, one.at)], "the same after a restart"


def test_a_series_that_came_and_went_in_an_outage_is_found_after_it(tmp_path: Path) -> None:
    prometheus, signals = FakePrometheus(), list[Signal]()
    poll = metric_poll(prometheus, policy(tmp_path), signals)
    poll.poll()
    prometheus.is_away = True
    with pytest.raises(AdapterError):
        poll.poll()
    prometheus.is_away, prometheus.broken = False, between(120, 60)
    poll.poll()
    assert len(signals) == 1
    assert metric_since(tmp_path, prometheus, 30) == [], "it ended before the cursor"
    assert len(metric_since(tmp_path, prometheus, 600)) == 1


def metric_since(folder: Path, prometheus: FakePrometheus, since_s: float) -> list[Signal]:
    signals = list[Signal]()
    metric_poll(prometheus, policy(folder), signals, since_s).poll()
    return signals


def test_a_hole_of_prometheus_itself_ends_no_series(tmp_path: Path) -> None:
    prometheus = FakePrometheus()
    prometheus.broken = between(3600)
    prometheus.up = lambda at: not between(2400, 600)(at)
    assert len(metric_since(tmp_path, prometheus, 3000)) == 1
    prometheus.up = lambda _: True
    prometheus.broken = lambda at: between(3600)(at) and not between(2400, 600)(at)
    assert len(metric_since(tmp_path, prometheus, 3000)) == 2, "an end that Prometheus saw is one"


def test_a_series_older_than_anything_read_never_taints_a_node_that_was_returned(options: Options) -> None:
    prometheus, signals = FakePrometheus(), list[Signal]()
    prometheus.broken = lambda _: True
    metric_poll(prometheus, options.policy, signals).poll()
    (old,) = signals
    assert not old.is_begin_known
    api = DictApi()
    worker = start(api, options, signal(SignalKind.ALERT, 5))
    give_back(worker, api)
    start(api, options, old)
    assert not api.is_tainted()
    fresh = DictApi()
    start(fresh, options, old)
    assert fresh.is_tainted(), "a node that was never returned has a fault that lasts"


STARTS = "2026-01-01T00:00:00.000Z"
ALERT = {
    "status": "firing",
    "labels": {"alertname": "GPUHot", "node": "n1", "pci_bus_id": "00000000:4E:00.0"},
    "annotations": {"summary": "hot"},
    "startsAt": STARTS,
    "endsAt": "0001-01-01T00:00:00Z",
}


class Receiver:
    def __init__(self, policy: Policy, token_file: Path | None = None) -> None:
        self.taken: list[Signal] = []
        self.is_busy = False
        self.troubles: list[Trouble] = []
        options = ReceiverOptions("127.0.0.1", 0, token_file)
        self.webhook = AlertWebhook(options, policy, self._take, self.troubles.append)
        self.webhook.start()

    def _take(self, found: Signal) -> bool:
        if not self.is_busy:
            self.taken.append(found)
        return not self.is_busy

    def send(self, body: object, path: str = "/alerts", **headers: str) -> int:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.webhook.port}{path}"
        return httpx.post(url, content=content, headers=headers, trust_env=False).status_code


@pytest.fixture
def receiver(tmp_path: Path) -> Iterator[Receiver]:
    made = Receiver(policy(tmp_path))
    yield made
    made.webhook.stop()


def test_the_webhook_takes_firing_alerts_about_nodes(receiver: Receiver) -> None:
    resolved = ALERT | {"status": "resolved"}
    unknown = ALERT | {"labels": {"alertname": "Other", "node": "n1"}}
    nameless = ALERT | {"labels": {"alertname": "GPUHot"}}
    endless = ALERT | {"labels": {"alertname": "GPUHot", "node": "n" * 254}}
    assert receiver.send({"version": "4", "alerts": [ALERT, resolved, unknown, nameless, endless]}) == 200
    (one,) = receiver.taken
    assert (one.node, one.name, one.gpu, one.text) == ("n1", "GPUHot", PCI, "hot")
    assert one.at == datetime(2026, 1, 1, tzinfo=UTC)
    assert one.labels == {}, "labels that no rule asks for are not kept"


def test_an_alert_that_cannot_be_taken_is_to_be_sent_again(receiver: Receiver) -> None:
    receiver.is_busy = True
    assert receiver.send({"alerts": [ALERT]}) == 503
    receiver.is_busy = False
    assert receiver.send({"alerts": [ALERT]}) == 200
    assert len(receiver.taken) == 1


@pytest.mark.parametrize(
    ("body", "path", "status"),
    [
        (b"{", "/alerts", 400),
        (b'{"alerts": {"status": "firing"}}', "/alerts", 400),
        (b"x" * (LARGEST_BODY_BYTES + 1), "/alerts", 413),
        (b"{}", "/elsewhere", 404),
    ],
)
def test_the_webhook_refuses_what_is_no_notification(receiver: Receiver, body: bytes, path: str, status: int) -> None:
    assert receiver.send(body, path) == status
    assert receiver.taken == []


def test_an_alert_in_a_storm_is_taken_however_many_others_come_with_it(receiver: Receiver) -> None:
    others = [ALERT | {"labels": {"alertname": f"Other{one}"}, "annotations": {"d": "d" * 600}} for one in range(2500)]
    body = json.dumps({"version": "5", "alerts": [*others, {"status": "firing"}, ALERT]}).encode()
    assert 1024 * 1024 < len(body) < LARGEST_BODY_BYTES
    assert receiver.send(body) == 200
    assert [one.node for one in receiver.taken] == ["n1"]
    assert receiver.troubles == [Trouble.NO_ALERT], "an entry that is no alert costs no other"


def test_what_the_webhook_may_have_missed_is_counted_and_told_once(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        assert receiver.send({"alerts": [ALERT], "truncatedAlerts": 4000}) == 200
    assert receiver.send(b"x" * (LARGEST_BODY_BYTES + 1)) == 413, "it would be as large the next time"
    assert receiver.troubles == [*[Trouble.TRUNCATED] * 3, Trouble.TOO_LARGE]
    told = [record.message for record in caplog.records]
    assert len(told) == 2 and "4000 alerts were left out" in told[0] and "max_alerts" in told[1]


def test_a_token_that_cannot_be_read_here_is_no_reason_to_forget_an_alert(tmp_path: Path) -> None:
    receiver = Receiver(policy(tmp_path), tmp_path / "not-mounted-yet")
    assert receiver.send({"alerts": [ALERT]}) == 503
    receiver.webhook.stop()


def test_alertmanager_is_asked_at_once_about_what_it_left_out(tmp_path: Path) -> None:
    found: queue.Queue[Signal] = queue.Queue()
    alertmanager = FakeAlertmanager()

    def bring(signal: Signal) -> bool:
        found.put(signal)
        return True

    servers = Servers(
        cast(LogStore, None),
        alertmanager=cast(Alertmanager, alertmanager),
        webhook=ReceiverOptions("127.0.0.1", 0),
    )
    alerts = policy(tmp_path).model_copy(update={"rules": policy(tmp_path).rules_of(SignalKind.ALERT)})
    sources = build_sources(alerts, servers, cast(JsonApi, None), lambda _: 0, bring, lambda *_: None, lambda _: None)
    for source in sources:
        source.start()
    assert alertmanager.asked.wait(60)
    alertmanager.found = ({key: value for key, value in ALERT.items() if key != "status"},)
    (webhook,) = [source for source in sources if isinstance(source, AlertWebhook)]
    body = json.dumps({"alerts": [], "truncatedAlerts": 1})
    httpx.post(f"http://127.0.0.1:{webhook.port}/alerts", content=body, trust_env=False)
    assert found.get(timeout=20).node == "n1", "the next poll would be in 30 s"
    for source in sources:
        source.stop()


def test_the_webhook_asks_for_its_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    receiver = Receiver(policy(tmp_path), token)
    try:
        assert receiver.send({"alerts": [ALERT]}) == 401
        assert receiver.send({"alerts": [ALERT]}, Authorization="Bearer wrong") == 401
        assert receiver.send({"alerts": [ALERT]}, Authorization="Bearer secret") == 200
        token.write_text("")
        assert receiver.send({"alerts": [ALERT]}, Authorization="Bearer") == 401
    finally:
        receiver.webhook.stop()


class FakeAlertmanager:
    def __init__(self, *alerts: dict[str, Any]) -> None:
        self.found = alerts
        self.asked = threading.Event()

    def alerts(self) -> list[NotifiedAlert]:
        self.asked.set()
        rest = {"updatedAt": STARTS, "status": {"state": "active"}}
        return [NotifiedAlert.model_validate(rest | alert) for alert in self.found]


def test_the_poll_brings_what_the_webhook_missed_once_and_by_the_same_key(tmp_path: Path, receiver: Receiver) -> None:
    receiver.send({"alerts": [ALERT]})
    polled = list[Signal]()

    def take(found: Signal) -> bool:
        polled.append(found)
        return True

    muted = ALERT | {"labels": ALERT["labels"] | {"node": "n2"}, "status": {"state": "suppressed"}}  # type: ignore[operator]
    unmuted = {key: value for key, value in ALERT.items() if key != "status"}
    poll = AlertPoll(FakeAlertmanager(unmuted, muted), policy(tmp_path), take)  # type: ignore[arg-type]
    poll.poll()
    poll.poll()
    assert [found.key for found in polled] == [receiver.taken[0].key]


def test_the_query_for_pods_logs_holds_all_namespaces_and_patterns(tmp_path: Path) -> None:
    assert pod_log_query(policy(tmp_path), "ns") == '{ns=~"training"} |~ `NCCL WARN|CUDA error`'
    two = policy(tmp_path).model_copy()
    rule = next(rule for rule in two.rules if rule.pod_log)
    assert rule.pod_log
    other = rule.model_copy(update={"pod_log": rule.pod_log.model_copy(update={"namespaces": ("a",), "pattern": "x"})})
    joined = two.model_copy(update={"rules": (rule, other)})
    assert pod_log_query(joined, "ns") == '{ns=~"a|training"} |~ `(?:NCCL WARN|CUDA error)|(?:x)`'


def test_an_address_of_dcgm_exporter_is_that_of_the_kernel_log() -> None:
    assert pci_address("00000000:4E:00.0") == PCI
    assert pci_address("4e:00.0") == PCI
    assert pci_address("GPU-1234") is None
    assert pci_address(None) is None


def test_a_fault_of_a_signal_ends_by_its_remedy(options: Options) -> None:
    api = DictApi()
    worker = start(api, options, signal(SignalKind.EVENT))
    api.node["status"]["nodeInfo"]["bootID"] = "b2"
    api.node["metadata"]["resourceVersion"] = str(int(api.node["metadata"]["resourceVersion"]) + 1)
    show(worker, api)
    reason = read_reason(api.node["metadata"]["annotations"][REASON])
    assert reason is not None
    assert reason.remedy is Remedy.REBOOT
    assert reason.remedied is not None


def conservative(api: DictApi, *lines: tuple[float, float]) -> Worker:
    """Start a controller with policy `conservative`, which reads Xids 119 (age in the store, stamp)."""
    options = Options(
        load_policy("conservative").policy, Taint.parse(f"{KEY}=true:NoSchedule"), "{}", "node", "gameday"
    )
    worker = start(api, options)
    for age_s, uptime_s in lines:
        text = f"[{uptime_s:12.6f}] {format_xid(119, PCI)}"
        worker.handle_line(detection(time.time_ns() - int(age_s * 1e9), text))
        worker.write_due()
    worker.save(immediately=True)
    return worker


def test_a_watched_line_quarantines_at_its_second_sighting_also_after_a_restart() -> None:
    api = DictApi()
    conservative(api, (600, 1000))
    assert not api.is_tainted()
    conservative(api, (60, 1540))
    assert api.is_tainted()


def test_a_watched_line_that_is_shipped_again_is_no_second_sighting() -> None:
    api = DictApi()
    conservative(api, (600, 1000), (300, 1000))
    conservative(api, (60, 1000))
    assert not api.is_tainted()


def test_the_lines_of_one_burst_are_one_sighting() -> None:
    api = DictApi()
    conservative(api, (600, 1000), (599, 1001), (598, 1002))
    assert not api.is_tainted()
