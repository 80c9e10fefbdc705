"""The permission for probes to run now, by the cluster profile's windows, freezes and stop-the-line alerts.

A probe breaks nothing and moves no pod, so the limits on broken nodes and on pods do not apply.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime

from gameday.cluster.profile import ClusterGuardrails, ClusterProfile
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from gameday.guard.guardrails.freezes import why_frozen
from gameday.guard.guardrails.stop_alerts import stops_the_line
from gameday.guard.guardrails.windows import describe_window, open_until

_ASK_EVERY_S = 5.0
"""Seconds between looks at alerts, the same as for a game-day's guardrail."""


class Permission:
    """Checks everything that may forbid probes, for several threads."""

    def __init__(self, profile: ClusterProfile) -> None:
        """Prepare; nothing is asked yet."""
        self._profile = profile
        self._prometheus = Prometheus(profile.prometheus)
        self._lock = threading.Lock()
        self._asked_at = -_ASK_EVERY_S
        self._why = ""

    def why_not(self) -> str:
        """Return why no probe may run now; empty if it may. If something cannot be asked, no probe may run."""
        limits = self._profile.guardrails
        return why_closed(limits, datetime.now(UTC)) or self._alerts(limits)

    def close(self) -> None:
        """Close the connection."""
        self._prometheus.close()

    def _alerts(self, limits: ClusterGuardrails) -> str:
        if not limits.stop_alerts and not limits.stop_severities:
            return ""
        with self._lock:
            if time.monotonic() - self._asked_at >= _ASK_EVERY_S:
                self._why = self._firing(limits)
                self._asked_at = time.monotonic()
            return self._why

    def _firing(self, limits: ClusterGuardrails) -> str:
        try:
            alerts = self._prometheus.alerts()
        except AdapterError as error:
            return f"guardrail stop-the-line alerts: not measured, {error}"
        stopping = {alert.name for alert in alerts if stops_the_line(alert, limits.stop_alerts, limits.stop_severities)}
        return f"guardrail stop-the-line alerts: {', '.join(sorted(stopping))} firing" if stopping else ""


def why_closed(limits: ClusterGuardrails, now: datetime) -> str:
    """Return which of the profile's windows and freezes forbids probes now; empty if none does."""
    if why := why_frozen(limits.freezes, now):
        return f"guardrail change freeze: {why}"
    if limits.windows and not any(open_until(window, now) for window in limits.windows):
        return f"guardrail time windows: none is open of {' or '.join(map(describe_window, limits.windows))}"
    return ""
