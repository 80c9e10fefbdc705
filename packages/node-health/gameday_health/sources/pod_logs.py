"""Lines of pods' logs as signals: one query for all patterns of a policy, followed like the kernel log."""

from __future__ import annotations

import json
import re
import threading

from gameday.cluster.loki import Followed, LogFollower, LogLine, LogStore
from gameday.errors import AdapterError
from gameday.values.patterns import either
from gameday_health.model import digest
from gameday_health.policy import Policy
from gameday_health.policy_files import pod_log_signal
from gameday_health.signal import SignalKind
from gameday_health.sources.base import OnSignal, Source


class PodLogs(Source):
    """The lines of pods in the log store that match a pattern of the policy."""

    kind = SignalKind.POD_LOG

    def __init__(
        self,
        store: LogStore,
        policy: Policy,
        since_ns: int,
        on_signal: OnSignal,
        *,
        node_label: str,
        namespace_label: str,
    ) -> None:
        """Prepare to follow.

        Args:
            store: The log store.
            policy: The policy with the pod-log rules.
            since_ns: Unix time of the oldest line.
            on_signal: Takes the signals.
            node_label: The label that names a line's node.
            namespace_label: The index label that names a line's namespace.
        """
        self._on_signal = on_signal
        self._node_label = node_label
        self._namespace_label = namespace_label
        self._trouble = "not connected yet"
        query = pod_log_query(policy, namespace_label)
        self._follower = LogFollower(store, query, since_ns, on_connected=self._connected)

    def start(self) -> None:
        threading.Thread(target=self._run, name="pod logs", daemon=True).start()

    def stop(self) -> None:
        self._follower.stop()

    def trouble(self) -> str:
        return self._trouble

    def _connected(self, how: Followed | None) -> None:
        self._trouble = "" if how else "the log store is not followed"

    def _run(self) -> None:
        try:
            for line in self._follower.lines():
                self._bring(line)
        except AdapterError as error:
            self._trouble = str(error)

    def _bring(self, line: LogLine) -> None:
        labels = dict(line.labels)
        key = digest(f"{line.ns} {line.labels} {line.text}")
        namespace, node = labels.get(self._namespace_label, ""), labels.get(self._node_label, "")
        self._on_signal(pod_log_signal(line.text, namespace, node, line.at, key))


def pod_log_query(policy: Policy, namespace_label: str) -> str:
    """Return the LogQL query for all pod-log rules of a policy."""
    matches = [rule.pod_log for rule in policy.rules if rule.pod_log]
    namespaces = "|".join(sorted({re.escape(name) for match in matches for name in match.namespaces}))
    patterns = list(dict.fromkeys(match.pattern for match in matches))
    return f"{{{namespace_label}=~{json.dumps(namespaces)}}} |~ `{either(patterns)}`"
