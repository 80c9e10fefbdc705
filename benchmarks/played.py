"""Read finished game-days of the control plane: their times, what their load cost by itself, how fast pods were bound.

Nothing here plays anything. What a game-day did not measure is None, and never 0.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pandas as pd

from gameday.checks.api_canary import fault_window
from gameday.checks.facts import target_nodes
from gameday.checks.memory_slope import MEMORY
from gameday.checks.pod_steps import step_costs
from gameday.history.events import FaultUndone, LoadMeasured, OwnCost, PodStepsLogged
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.report.figure import figures_of
from gameday.report.figures.list_or_watch import cores_used
from gameday.report.run_folder import RunFolder, load_run_folder
from gameday.runs.comparison_record import ComparisonRecord
from gameday.runs.run_list import ARMS_FILE
from gameday.values.api_loads import Followed, Reconnected, SteadyLoad
from gameday.values.pod_steps import Allocation, PodStep

_STORM_COST = re.compile(r"own cost: ([\d.]+) s of CPU, (\d+) MB of memory")
"""The line of evidence by `summary` of gameday.faults.list_storm: a storm's cost is nowhere else in the history."""


_SLOWER = 0.8
"""A share of the rate of creation: schedulers that bind fewer pods than that set the pace."""


@dataclass(frozen=True)
class Cost:
    """The cost of some processes over the time of a load."""

    cores: float | None
    """Processor time by time."""
    memory: float | None
    """Most resident memory, in bytes."""


@dataclass(frozen=True)
class LoadCost:
    """The cost of a load's own clients beside that of the API servers, and that of the game-day's own process."""

    name: str
    seconds: float
    """The load's time, from the fault going in."""
    clients: Cost
    api_servers: Cost
    """All of them together."""
    game_day: Cost
    """The process in which the flow runs, over the game-day's whole time, which is longer than `seconds`."""


@dataclass(frozen=True)
class Repeated:
    """The values of one figure in several game-days, oldest first."""

    values: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> float:
        """The largest less the smallest, by the median."""
        return (max(self.values) - min(self.values)) / self.median

    @property
    def variation(self) -> float | None:
        """The coefficient of variation: the sample's standard deviation by its mean; None for one value."""
        return statistics.stdev(self.values) / statistics.fmean(self.values) if len(self.values) > 1 else None


@dataclass(frozen=True)
class Throughput:
    """The pods that schedulers bound in a second, and the pods that were created in one: the most there is to bind."""

    name: str
    allocation: Allocation
    pods: int
    """Pods bound in all steps."""
    binds_per_s: float
    """The last step's, with the most pods on the nodes."""
    binds_per_s_of_all: float
    """All steps' together, without the pauses between them."""
    planned_per_s: float
    """The plan's rate of creation."""
    created_per_s: float
    """The rate of creation in the last step, by `created_per_s`."""
    p50_s: float | None
    """Scheduling SLI as the schedulers measured it."""
    p99_s: float | None

    @property
    def is_held_back(self) -> bool:
        """The last step's pods were bound about as fast as they came, so that the scheduler may be faster than this."""
        return self.binds_per_s >= _SLOWER * self.created_per_s


@dataclass(frozen=True)
class Published:
    """Pods bound in a second by somebody else's measurement, from least to most."""

    what: str
    least: float
    most: float


# KEP-4381 has scheduler_perf's: in one process, without a cluster's etcd. None is published for the scheduler by zone.
PUBLISHED = {
    Allocation.DRA: (
        Published("threshold of scheduler_perf, 5,000 pods on 500 nodes (KEP-4381)", 40, 56),
        Published("scheduler_perf as a rule, 5,000 pods on 500 nodes (KEP-4381)", 51, 70),
    ),
    Allocation.DEVICE_PLUGIN: (
        Published("5,000 nodes, held back by its client's QPS (kubernetes#74041)", 100, 100),
        Published("with those limits raised (kubernetes#108606)", 300, 300),
    ),
    Allocation.TOPOLOGY: (),
}


def game_days(reports: Path) -> list[RunFolder]:
    """Return the game-days in a folder and below it whose plan and beginning can be read, oldest first."""
    found = [load_run_folder(path.parent) for path in reports.rglob("history.jsonl")]
    return sorted((run for run in found if run.plan and run.started), key=lambda run: run.history.records[0].at)


def name_of(run: RunFolder) -> str:
    """Return the name of a game-day's plan, its arm's name included."""
    return run.started.plan_name if run.started else ""


def repetitions(reports: Path) -> tuple[int, int]:
    """Return how many arms the comparison in a folder has, and how often each is to be played; (1, 1) without one."""
    for path in reports.rglob(ARMS_FILE):
        record = ComparisonRecord.load(path.parent)
        return len(record.arms), record.repetitions
    return 1, 1


def seconds_of(run: RunFolder) -> float:
    """Return a game-day's time from its first record to its last."""
    return (run.history.records[-1].at - run.history.records[0].at).total_seconds()


def repeated(runs: Iterable[RunFolder], plan: str, figure: str) -> Repeated:
    """Return the values of a figure; a game-day without it is left out.

    Args:
        runs: The game-days, oldest first.
        plan: The plan's name, its arm's name included: those of other names are left out.
        figure: Its name, as in a comparison.
    """
    values = [
        one.value
        for run in runs
        if run.plan and name_of(run) == plan
        for one in figures_of(run.plan, run.history, run.frames).figures
        if one.name == figure
    ]
    return Repeated(tuple(values))


def load_cost(run: RunFolder) -> LoadCost | None:
    """Return what a game-day's load cost; None where no load went in, or none that ended."""
    nodes = target_nodes(run.history)
    window = fault_window(run.history, nodes[0]) if nodes else None
    if window is None:
        return None
    seconds = (window.end - window.begin).total_seconds()
    cpu_s, memory = _own_cost(run.history)
    own = run.history.last(OwnCost)
    return LoadCost(
        name=name_of(run),
        seconds=seconds,
        clients=Cost(None if cpu_s is None else cpu_s / seconds, memory),
        api_servers=_of_servers(run.frames.api_server, window.begin, window.end),
        game_day=Cost(own.cpu_s / seconds_of(run), own.peak_rss_bytes) if own else Cost(None, None),
    )


def _own_cost(history: History) -> tuple[float | None, float | None]:
    """Return the seconds of processor time of a load's clients, and their most memory in bytes."""
    for event in history.of(LoadMeasured):
        match event.measured:
            case SteadyLoad() | Reconnected() as load:
                return load.cpu_seconds, None
            case Followed() as load:
                return load.to_sync.cpu_seconds + load.to_follow.cpu_seconds, None
    for undone in history.of(FaultUndone):
        for line in undone.evidence:
            if found := _STORM_COST.match(line):
                return float(found[1]), float(found[2]) * 1e6
    return None, None


def _of_servers(api_server: pd.DataFrame, begin: datetime, end: datetime) -> Cost:
    memory = api_server[api_server.metric == MEMORY]
    memory = memory[(memory.time >= pd.Timestamp(begin)) & (memory.time <= pd.Timestamp(end))]
    cores = cores_used(api_server, begin, end)
    # A server that started again has no cores: the sum of the others would be too little.
    whole = bool(cores) and set(cores) == set(memory.server)
    most = memory.groupby("server").value.max()
    return Cost(sum(cores.values()) if whole else None, float(most.sum()) if len(most) else None)


def throughput(run: RunFolder) -> Throughput | None:
    """Return how fast pods were bound, churn left out; None where the game-day has no step with a bound pod."""
    logged = run.history.last(PodStepsLogged)
    costs = [one for one in step_costs(logged, run.frames) if not one.step.deleted] if logged else []
    if run.plan is None or not costs or not costs[-1].binds_per_s:
        return None
    pods = sum(one.step.bound for one in costs)
    last, planned = costs[-1], float(_parameter(run.plan, "rate"))
    return Throughput(
        name=name_of(run),
        allocation=Allocation(_parameter(run.plan, "allocation")),
        pods=pods,
        binds_per_s=last.binds_per_s or 0,
        binds_per_s_of_all=pods / sum(one.step.took_s for one in costs),
        planned_per_s=planned,
        created_per_s=created_per_s(last.step, planned),
        p50_s=last.p50_s,
        p99_s=last.p99_s,
    )


def created_per_s(step: PodStep, planned: float) -> float:
    """Return about how many pods of a step were created in a second, which its client did not note.

    Where pods are created and bound at two steady rates, the median wait is half of the time by which the last binding
    is later than the last creation.

    Args:
        step: The step; its pods are bound.
        planned: The plan's rate, which is the most it can be.
    """
    creating_s = step.took_s - 2 * (step.p50_s or 0)
    return min(planned, step.created / creating_s) if creating_s > 0 else planned


def _parameter(plan: Plan, name: str) -> str:
    """Return a parameter of the fault, which a plan that is read back holds as it was written."""
    return str(plan.fault.model_dump()[name])


def ratio(value: float | None, of: float | None) -> float | None:
    """Return one number by another; None where either was not measured, or the other is 0."""
    return None if value is None or not of else value / of
