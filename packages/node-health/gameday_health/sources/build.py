"""The sources that a policy needs, from the available servers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gameday.cluster.alert_receiver import ReceiverOptions, Trouble
from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.json_api import JsonApi
from gameday.cluster.loki import LogStore
from gameday.cluster.prometheus import Prometheus
from gameday_health.policy import Policy
from gameday_health.signal import SignalKind
from gameday_health.sources.alerts import AlertPoll, AlertWebhook
from gameday_health.sources.base import OnSignal, Source
from gameday_health.sources.kube_events import EventWatch
from gameday_health.sources.metrics import MetricPoll
from gameday_health.sources.pod_logs import PodLogs


@dataclass(frozen=True)
class Servers:
    """The servers that signals come from; the API server is always there."""

    logs: LogStore
    prometheus: Prometheus | None = None
    alertmanager: Alertmanager | None = None
    webhook: ReceiverOptions | None = None
    node_label: str = "k8s_node_name"
    """Label that names the node of a line in the log store."""
    namespace_label: str = "k8s_namespace_name"
    """Index label that names the namespace of a pod's line in the log store."""


def require_servers(policy: Policy, servers: Servers) -> None:
    """Refuse a policy with rules that no server would feed.

    Raises:
        ValueError: The message names the rules, and the option that is missing.
    """
    if (metrics := policy.rules_of(SignalKind.METRIC)) and servers.prometheus is None:
        raise ValueError(f"policy {policy.name} asks Prometheus (rule {metrics[0].name}): give --prometheus-url")
    alerts = policy.rules_of(SignalKind.ALERT)
    if alerts and servers.alertmanager is None and servers.webhook is None:
        raise ValueError(
            f"policy {policy.name} reads alerts (rule {alerts[0].name}): give --alertmanager-url, --alert-port or both"
        )


def build_sources(
    policy: Policy,
    servers: Servers,
    api: JsonApi,
    since: Callable[[SignalKind], int],
    on_signal: OnSignal,
    on_read: Callable[[SignalKind, int], None],
    on_trouble: Callable[[Trouble], object],
) -> list[Source]:
    """Return the sources that the policy has rules for, not started yet.

    Args:
        policy: The policy.
        servers: The servers, as `require_servers` accepts them.
        api: The API server.
        since: Returns the Unix ns from which to read a kind of signal.
        on_signal: Takes the signals.
        on_read: Called when a source knows that its signals are complete up to a moment, Unix ns.
        on_trouble: Called when the webhook may have missed alerts.

    Raises:
        OSError: The webhook's port cannot be bound.
    """
    sources: list[Source] = []
    if policy.rules_of(SignalKind.ALERT):
        poll = AlertPoll(servers.alertmanager, policy, on_signal) if servers.alertmanager else None

        def ask(trouble: Trouble) -> None:
            on_trouble(trouble)
            if poll and trouble is not Trouble.NOT_ALLOWED:
                poll.ask_now()

        sources += [poll] if poll else []
        sources += [AlertWebhook(servers.webhook, policy, on_signal, ask)] if servers.webhook else []
    if policy.rules_of(SignalKind.EVENT):
        sources.append(EventWatch(api, since(SignalKind.EVENT), on_signal))
    if policy.rules_of(SignalKind.METRIC) and servers.prometheus:
        kind = SignalKind.METRIC
        sources.append(MetricPoll(servers.prometheus, policy, since(kind), on_signal, lambda ns: on_read(kind, ns)))
    if policy.rules_of(SignalKind.POD_LOG):
        labels = {"node_label": servers.node_label, "namespace_label": servers.namespace_label}
        sources.append(PodLogs(servers.logs, policy, since(SignalKind.POD_LOG), on_signal, **labels))
    return sources
