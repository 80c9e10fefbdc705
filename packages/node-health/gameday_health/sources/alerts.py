"""Alerts as signals: Alertmanager's webhook brings them, and a poll finds those that an outage held back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime

from gameday.cluster.alert_receiver import AlertReceiver, ReceivedAlert, ReceiverOptions, Trouble
from gameday.cluster.alertmanager import Alertmanager
from gameday_health.model import digest
from gameday_health.policy import Policy
from gameday_health.signal import Signal, SignalKind
from gameday_health.sources.base import OnSignal, PollingSource, Source, pci_address

_LONGEST_TEXT = 400
_LONGEST_NODE_NAME = 253


def alert_signals(
    policy: Policy, labels: Mapping[str, str], annotations: Mapping[str, str], starts_at: datetime
) -> Iterator[Signal]:
    """Yield the signal of a firing alert; none if no rule is about it, or if it names no node."""
    name, seen = labels.get("alertname", ""), datetime.now(UTC)
    text = (annotations.get("summary") or annotations.get("description") or "")[:_LONGEST_TEXT]
    identity = json.dumps([sorted(labels.items()), int(starts_at.timestamp() * 1000)])
    signal = Signal("", SignalKind.ALERT, name, starts_at, seen, text, labels=dict(labels), key=digest(identity))
    rule = next((rule for rule in policy.rules_of(SignalKind.ALERT) if rule.matches(signal)), None)
    if rule is None or rule.alert is None:
        return
    node, gpu = labels.get(rule.alert.node_label, ""), pci_address(labels.get(rule.alert.gpu_label))
    if 0 < len(node) <= _LONGEST_NODE_NAME:
        # The other labels may be large, and signals of unknown nodes are kept.
        matched = {key: labels[key] for key in rule.alert.labels}
        yield Signal(node, signal.kind, name, starts_at, seen, text, gpu, matched, signal.key)


class AlertPoll(PollingSource):
    """A poll of Alertmanager for firing alerts, without those that a silence or an inhibition mutes."""

    kind = SignalKind.ALERT
    poll_s = 30.0

    def __init__(self, alertmanager: Alertmanager, policy: Policy, on_signal: OnSignal) -> None:
        super().__init__()
        self._alertmanager = alertmanager
        self._policy = policy
        self._on_signal = on_signal
        self._brought: set[str] = set()

    def poll(self) -> None:
        firing = {
            signal.key: signal
            for alert in self._alertmanager.alerts()
            if alert.status.state == "active"
            for signal in alert_signals(self._policy, alert.labels, alert.annotations, alert.starts_at)
        }
        self._brought &= firing.keys()
        for key, signal in firing.items():
            if key not in self._brought and self._on_signal(signal):
                self._brought.add(key)


class AlertWebhook(Source):
    """The firing alerts among those that Alertmanager's webhook sends."""

    kind = SignalKind.ALERT

    def __init__(
        self,
        options: ReceiverOptions,
        policy: Policy,
        on_signal: OnSignal,
        on_trouble: Callable[[Trouble], object] = lambda _: None,
    ) -> None:
        """Bind the port.

        Args:
            options: The address, and who may send.
            policy: The policy with the alert rules.
            on_signal: Takes the signals.
            on_trouble: Called when alerts may be missing.

        Raises:
            OSError: The port cannot be bound.
        """
        self._policy = policy
        self._on_signal = on_signal
        self._receiver = AlertReceiver(options, self._take, on_trouble)

    @property
    def port(self) -> int:
        """The port that is bound."""
        return self._receiver.port

    def start(self) -> None:
        self._receiver.start()

    def stop(self) -> None:
        self._receiver.stop()

    def trouble(self) -> str:
        return ""

    def _take(self, alerts: Sequence[ReceivedAlert]) -> bool:
        return all(
            self._on_signal(signal)
            for alert in alerts
            if alert.status == "firing"
            for signal in alert_signals(self._policy, alert.labels, alert.annotations, alert.starts_at)
        )
