"""Figures of finished game-days for the control plane's benchmarks: own cost, repeated figures, pods bound."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pandas as pd
import pytest

from benchmarks import played
from benchmarks.played import Cost, Repeated
from gameday.api_clients.order import OwnCost as ClientsCost
from gameday.faults.list_storm import summary
from gameday.faults.pods_in_steps import PodsInStepsParameters
from gameday.history.events import Event, FaultUndone, LoadMeasured, OwnCost, PodStepsLogged, RunEnded, RunStarted
from gameday.history.frames import Frames
from gameday.values.api_loads import SteadyLoad, SteadySecond
from gameday.values.pod_steps import Allocation, PodStep
from tests.arms import builders
from tests.report import run_builder as build
from tests.support.stages import frame, grown, scraped, staged

CPU = "process_cpu_seconds_total"
ENDED = 49.4
"""The load's end, 40 s after the fault went in."""


def steady() -> LoadMeasured:
    load = SteadyLoad(
        clients=6,
        rate=1,
        protocol="http2",
        watch_only=False,
        began_at=build.at(build.FAULT_AT),
        ended_at=build.at(ENDED),
        cpu_seconds=8,
        seconds=(SteadySecond(at=build.at(10), requests=6),),
    )
    return LoadMeasured(node=build.NODE, measured=load)


def cpu(server: str, *values: float) -> pd.DataFrame:
    return frame([(10.0 + 10 * number, value) for number, value in enumerate(values)], server, CPU)


def memory(server: str, *values: float) -> pd.DataFrame:
    return frame([(10.0 + 10 * number, value) for number, value in enumerate(values)], server)


def cost_of(folder: Path, events: Sequence[build.Timed], *rows: pd.DataFrame) -> played.LoadCost | None:
    build.write(folder, events, Frames(api_server=pd.concat(rows)))
    return played.load_cost(played.game_days(folder)[0])


def test_steady_clients_are_set_beside_all_servers(tmp_path: Path) -> None:
    own = build.Timed(100, OwnCost(cpu_s=2, peak_rss_bytes=300))
    rows = (cpu("a", 1, 2, 3, 4), cpu("b", 5, 6, 7, 8), memory("a", 1, 9, 2), memory("b", 20, 1, 1))
    found = cost_of(tmp_path, [*build.passing(), build.Timed(50, steady()), own], *rows)
    assert found is not None
    assert found.seconds == pytest.approx(40)
    assert found.clients == Cost(pytest.approx(0.2), None)
    assert found.api_servers == Cost(pytest.approx(0.2), 29)
    assert found.game_day.memory == 300


def test_a_server_that_started_again_leaves_the_servers_cores_unknown(tmp_path: Path) -> None:
    rows = (cpu("a", 1, 2, 3, 4), cpu("b", 5, 6, 0, 1), memory("a", 1), memory("b", 1))
    found = cost_of(tmp_path, [*build.passing(), build.Timed(50, steady())], *rows)
    assert found is not None
    assert found.api_servers == Cost(None, 2)


def test_a_storm_has_its_cost_in_the_evidence_of_its_undo(tmp_path: Path) -> None:
    lines = summary((), ClientsCost(cpu_seconds=12.3, rss_bytes=456_000_000))
    events = [
        dataclasses.replace(one, event=one.event.model_copy(update={"evidence": lines}))
        if isinstance(one.event, FaultUndone)
        else one
        for one in build.passing()
    ]
    found = cost_of(tmp_path, events, cpu("a", 1))
    assert found is not None
    assert found.clients == Cost(pytest.approx(12.3 / found.seconds), 456e6)
    assert found.api_servers == Cost(None, None)


def test_a_load_without_own_figures_is_unknown_and_none_is_no_cost(tmp_path: Path) -> None:
    found = cost_of(tmp_path / "churn", build.passing(), cpu("a", 1))
    assert found is not None
    assert found.clients == Cost(None, None)
    refused = [one for one in build.passing() if isinstance(one.event, RunStarted | RunEnded)]
    assert cost_of(tmp_path / "refused", refused, cpu("a", 1)) is None


def named(plan: str, *more: Event, later_s: float = 0) -> list[build.Timed]:
    events = [*build.passing(), *(build.Timed(60, event) for event in more)]
    return [
        dataclasses.replace(
            one,
            seconds=one.seconds + later_s,
            event=one.event.model_copy(update={"plan_name": plan}) if isinstance(one.event, RunStarted) else one.event,
        )
        for one in events
    ]


def test_k_of_each_game_day_of_one_arm_oldest_first(tmp_path: Path) -> None:
    for number, (plan, k) in enumerate((("storm-table", 3.0), ("storm-json", 9.0), ("storm-table", 2.0))):
        frames = Frames(api_server=scraped(*grown(k)))
        build.write(tmp_path / str(3 - number), named(plan, staged(), later_s=number), frames)
    build.write(tmp_path / "without", named("storm-table", later_s=9), Frames())
    runs = played.game_days(tmp_path)
    assert [played.name_of(run) for run in runs] == ["storm-table", "storm-json", "storm-table", "storm-table"]
    found = played.repeated(runs, "storm-table", "k: memory by bytes of concurrent LISTs")
    assert found.values == (pytest.approx(3), pytest.approx(2))


def test_spread_and_variation() -> None:
    found = Repeated((2.0, 3.0, 4.0))
    assert (found.median, found.spread, found.variation) == (3, pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert Repeated((2.0,)).variation is None


def step(number: int, took_s: float, p50_s: float) -> PodStep:
    begin = build.at(10 * number)
    until = begin + timedelta(seconds=9)
    return PodStep(step=number, created=20, bound=20, took_s=took_s, p50_s=p50_s, p99_s=1, began_at=begin, until=until)


def test_pods_bound_in_the_last_step_and_in_all(tmp_path: Path) -> None:
    logged = PodStepsLogged(node=build.NODE, steps=(step(1, 1, 0.1), step(2, 4, 1)), placed=None)
    fault = PodsInStepsParameters(allocation=Allocation.DRA, rate=1000)
    build.write(tmp_path, named("pods-dra", logged), Frames(), build.PLAN.model_copy(update={"fault": fault}))
    found = played.throughput(played.game_days(tmp_path)[0])
    assert found is not None
    assert (found.allocation, found.pods, found.binds_per_s, found.binds_per_s_of_all) == (Allocation.DRA, 40, 5, 8)
    assert (found.planned_per_s, found.created_per_s) == (1000, 10)
    assert not found.is_held_back
    assert dataclasses.replace(found, binds_per_s=9).is_held_back


@pytest.mark.parametrize(
    ("p50_s", "planned", "expected"),
    [
        # 20 pods in 2 s: at once bound, half of the time late, created all at once, and at the plan's own rate.
        (0.0, 1000, 10),
        (0.5, 1000, 20),
        (1.0, 1000, 1000),
        (0.1, 10, 10),
    ],
)
def test_the_rate_of_creation_by_the_median_wait(p50_s: float, planned: float, expected: float) -> None:
    assert played.created_per_s(step(1, 2.0, p50_s), planned) == pytest.approx(expected)


def test_arms_and_repetitions_come_from_the_comparison(tmp_path: Path) -> None:
    assert played.repetitions(tmp_path) == (1, 1)
    builders.write_record(tmp_path, builders.record(builders.arm("a"), builders.arm("b"), repetitions=3))
    assert played.repetitions(tmp_path) == (2, 3)
