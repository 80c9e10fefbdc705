"""A scripted cluster in which nothing happens but what a test does: no scheduler, no kubelet, no Prometheus."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.cluster.profile import ClusterProfile
from gameday.cluster.watch import Follower
from gameday.run.servers import Servers
from tests.support.scripted.api_server import ADMINISTRATOR
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.script import Away, Script
from tests.support.virtual_clock import VirtualClock
from tests.support.world import Administrator

_OBSERVABILITY = ("prometheus", "alertmanager", "loki")


class ScriptedWorld(Administrator):
    """A `World` without processes and threads, whose time passes only while somebody waits."""

    clock: VirtualClock

    def __init__(self) -> None:
        away = tuple(Away(server, 0, math.inf) for server in _OBSERVABILITY)
        self.cluster = ScriptedCluster(Script(away=away), nodes=0)
        self.cluster.leave_pods_alone()
        self.clock = self.cluster.clock
        super().__init__(self.cluster.kubernetes(ADMINISTRATOR).api)

    def profile_of(self, account: str) -> ClusterProfile:
        return self.cluster.profile(account)

    def connect(self, profile: ClusterProfile, clock: Clock) -> Servers:
        return self.cluster.connect(profile, clock)

    def follow(
        self, list_call: Callable[..., Any], on_change: Callable[[str, Any], None], **selection: Any
    ) -> Follower:
        return self.cluster.follower(list_call, on_change, None, **selection)


@pytest.fixture(name="world")
def scripted_world() -> ScriptedWorld:
    return ScriptedWorld()
