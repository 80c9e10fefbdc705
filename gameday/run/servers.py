"""The servers of a cluster that a run asks, opened and closed together."""

from __future__ import annotations

from typing import Literal

from gameday.clock import Clock
from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.loki import Loki
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Prometheus
from gameday.history.events import ApiCost


class Servers:
    """The adapters of one run. Opening them sends no request."""

    def __init__(self, profile: ClusterProfile, clock: Clock = Clock()) -> None:
        self.kubernetes = Kubernetes(profile, clock=clock)
        self.prometheus = Prometheus(profile.prometheus)
        self.alertmanager = Alertmanager(profile.alertmanager)
        self.loki = Loki(profile)

    def close(self) -> None:
        """Close every connection."""
        for server in (self.prometheus, self.alertmanager, self.loki, self.kubernetes):
            server.close()

    def costs(self) -> list[ApiCost]:
        """Return the requests to each server so far."""
        counters: list[tuple[Literal["kubernetes", "prometheus", "alertmanager", "loki"], CallCounter]] = [
            ("kubernetes", self.kubernetes.counter),
            ("prometheus", self.prometheus.http.counter),
            ("alertmanager", self.alertmanager.http.counter),
            ("loki", self.loki.http.counter),
        ]
        return [
            ApiCost(
                server=server,
                requests=cost.requests,
                bytes_received=cost.bytes_received,
                bytes_sent=cost.bytes_sent,
                by_call=cost.by_call,
            )
            for server, counter in counters
            for cost in (counter.cost(),)
        ]
