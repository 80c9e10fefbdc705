"""Which tests share a worker when several run them.

A file stays on one worker, so that its tests share their servers; and all
whole game-days are on the same one, or each worker would start a rehearsal
cluster of its own and keep the machine busy with it. Whole
game-days begin first, or the others would wait for them at the end.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from tests.support.fixtures import new_run, reaper, runner, server, world

__all__ = ["new_run", "reaper", "runner", "server", "world"]

ONE_CLUSTER = "tests/game_days/"


class ByServers(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        return ONE_CLUSTER if nodeid.startswith(ONE_CLUSTER) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByServers:
    return ByServers(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.get_closest_marker("gameday") is None)
