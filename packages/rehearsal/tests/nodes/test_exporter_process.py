"""An exporter without its host engine: it ends at a scrape, and its kubelet starts it again later and later."""

from __future__ import annotations

import pytest

from gameday_rehearsal.nodes.exporter_release import ExporterRelease
from gameday_rehearsal.nodes.exposition import Exposition
from tests.rehearsal.nodes.conftest import Rack
from tests.rehearsal.nodes.scrapes import exposed

TEMPERATURE = "DCGM_FI_DEV_GPU_TEMP"


@pytest.fixture
def exporters(rack: Rack) -> Exposition:
    return exposed(rack, ExporterRelease.CODED)


def answer(exporters: Exposition) -> str:
    """The nodes that a scrape shows."""
    text = b"".join(exporters.render(names=[TEMPERATURE])).decode()
    return "".join(node for node in "ab" if f'Hostname="{node}"' in text)


def test_a_restart_of_the_engine_costs_a_scrape(rack: Rack, exporters: Exposition) -> None:
    rack.cache.restart(0)
    assert answer(exporters) == "b", "the exporter finds its connection broken, and exits"
    assert answer(exporters) == "ab", "its first restart is at once"


@pytest.mark.parametrize(("down_s", "back_after_s"), [(5, 5), (31, 39), (240, 70)])
def test_an_exporter_comes_back_with_the_kubelets_next_try(
    rack: Rack, exporters: Exposition, down_s: int, back_after_s: int
) -> None:
    machine = rack.machines[0]
    machine.set_unit("nvidia-dcgm", active=False)
    assert answer(exporters) == "b"
    rack.clock.pass_by(down_s)
    machine.set_unit("nvidia-dcgm", active=True)
    rack.clock.pass_by(back_after_s - 0.1)
    assert answer(exporters) == "b"
    rack.clock.pass_by(0.2)
    assert answer(exporters) == "ab"


def test_nothing_is_sampled_and_health_told_nothing_while_no_exporter_runs(rack: Rack, exporters: Exposition) -> None:
    rack.cache.restart(0)
    answer(exporters)
    rack.machines[0].record_xid(1, 95, "text")
    assert not rack.cache.watches(0, 150)
    assert not rack.cache.health_xids.get(95)


@pytest.mark.parametrize("started", ["unit", "node"])
def test_one_that_is_started_by_hand_or_with_its_node_waits_for_nothing(
    rack: Rack, exporters: Exposition, started: str
) -> None:
    machine = rack.machines[0]
    for _ in range(4):
        rack.cache.restart(0)
        assert answer(exporters) == "b"
        if started == "unit":
            machine.set_unit("nvidia-dcgm-exporter", active=False)
            machine.set_unit("nvidia-dcgm-exporter", active=True)
        else:
            machine._boot()
        assert answer(exporters) == "ab"
