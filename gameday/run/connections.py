"""What a run opens in its cluster, and closes again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.call_counter import CallCounter
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.loki import Loki
from gameday.cluster.pods import PodFollower
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.prometheus import Prometheus
from gameday.history.events import ApiCost
from gameday.ledger.lease import Leases
from gameday.ledger.ledger import Ledger


class Servers:
    """The adapters of one run, opened together and closed together."""

    def __init__(self, profile: ClusterProfile) -> None:
        self.kubernetes = Kubernetes(profile)
        self.prometheus = Prometheus(profile.prometheus)
        self.alertmanager = Alertmanager(profile.alertmanager)
        self.loki = Loki(profile)

    def close(self) -> None:
        for server in (self.prometheus, self.alertmanager, self.loki, self.kubernetes):
            server.close()

    def costs(self) -> list[ApiCost]:
        """What each server has been asked so far."""
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


@dataclass
class Opened:
    """Connections in the order in which a run opens them; None before. A read-only run opens its servers only."""

    servers: Servers | None = None
    leases: Leases | None = None
    pods: PodFollower | None = None
    ledger: Ledger | None = None
