"""The memory that concurrent LISTs cost an API server: k of `peak = base + k * clients * bytes`, by the load's stages.

An API server's resident memory does not fall between stages, because Go gives freed memory back over minutes. Two rules
keep that from being taken for the cost of LISTs. A stage is evidence only if its peak is above everything seen before
it, including while the objects were made; the line is drawn through those stages alone. If a server hardly grows there
is no line: the growth up to the highest peak is the most that LISTs can have cost, and k is at most that. A small drift
from stage to stage still looks like a small k; an arm with a form that the server streams shows how small.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import correlation, linear_regression

import pandas as pd

from gameday.checks.facts import first_fault, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict
from gameday.history.events import RunStarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.values.results import Step
from gameday_control_plane.events import LoadStaged
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedMemorySlope

ORDER = 61
MEMORY = "process_resident_memory_bytes"
HEAP = "go_memstats_heap_inuse_bytes"
"""The heap in use. It falls with each garbage collection and so shows no earlier peak, but scrapes may miss peaks."""
STARTED = "process_start_time_seconds"
FEWEST_STAGES = 3
"""The fewest points for a line, because a line through two points always fits."""


@dataclass(frozen=True)
class StagePeak:
    """A stage, with the most memory that the API servers held up to the end of its pause. All in bytes."""

    clients: int
    load: float
    """Bytes of its concurrent LISTs as JSON: clients times one LIST."""
    peak: float
    is_evidence: bool
    """True if the peak is above everything seen before."""


@dataclass(frozen=True)
class Line:
    """The line `peak = base + k * load` through the stages that are evidence."""

    base: float
    k: float
    r2: float


@dataclass(frozen=True)
class MemorySlope:
    """The result of all stages together."""

    stages: tuple[StagePeak, ...]
    line: Line | None
    """None if fewer than FEWEST_STAGES are evidence."""
    most: float
    """The growth up to the highest peak, per byte of the largest stage: k is no more than that."""

    @property
    def k(self) -> float:
        """The line's k; without a line, the most that k can be."""
        return self.line.k if self.line else self.most


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    containment = ControlPlane.of(plan.expect).containment
    expected = containment and containment.memory_slope
    return [_verdict(expected, history, frames, node) for node in target_nodes(history)] if expected else []


def memory_slope(api_server: pd.DataFrame, staged: LoadStaged, metric: str = MEMORY) -> MemorySlope | None:
    """Return what the stages cost; None if there are too few, one has no sample, or a server started again.

    Several servers are added up, because the load balancer decides how many clients each of them has.

    Args:
        api_server: The frame of that name.
        staged: The stages, of one fault.
        metric: A series of bytes by server.
    """
    if len(staged.stages) < FEWEST_STAGES or _starts_anew(api_server, staged):
        return None
    rows = api_server[api_server.metric == metric]
    earlier = rows[rows.time < pd.Timestamp(staged.stages[0].began_at)]
    if earlier.empty:
        return None
    before = highest = float(earlier.groupby("server").value.max().sum())
    stages = []
    for stage in staged.stages:
        own = rows[(rows.time >= pd.Timestamp(stage.began_at)) & (rows.time <= pd.Timestamp(stage.until))]
        peaks = own.groupby("server").value.max()
        if set(peaks.index) != set(rows.server):
            return None
        peak = float(peaks.sum())
        stages.append(StagePeak(stage.clients, float(stage.clients * staged.list_bytes), peak, peak > highest))
        highest = max(highest, peak)
    return MemorySlope(tuple(stages), _line(stages), (highest - before) / stages[-1].load)


def _starts_anew(api_server: pd.DataFrame, staged: LoadStaged) -> bool:
    starts = api_server[api_server.metric == STARTED]
    # Prometheus stores the start time rounded to milliseconds.
    return bool((starts.value > staged.stages[0].began_at.timestamp()).any())


def _line(stages: Sequence[StagePeak]) -> Line | None:
    points = [(stage.load, stage.peak) for stage in stages if stage.is_evidence]
    if len(points) < FEWEST_STAGES:
        return None
    loads, peaks = zip(*points, strict=True)
    fitted = linear_regression(loads, peaks)
    # Peaks that are evidence rise, and so do loads: neither is constant, so the correlation is defined.
    return Line(base=fitted.intercept, k=fitted.slope, r2=correlation(loads, peaks) ** 2)


def judge(expected: ExpectedMemorySlope, slope: MemorySlope) -> tuple[Status, str]:
    """Return the status and why; UNKNOWN if the stages neither give a line that fits nor decide without one."""
    line = slope.line if slope.line and slope.line.r2 >= expected.fit else None
    verdicts = []
    if expected.at_most is not None:
        if slope.most <= expected.at_most:
            verdicts.append(Status.HELD)
        elif line:
            verdicts.append(Status.HELD if line.k <= expected.at_most else Status.BROKEN)
        else:
            verdicts.append(Status.UNKNOWN)
    if expected.at_least is not None:
        if slope.most < expected.at_least:
            verdicts.append(Status.BROKEN)
        elif line:
            verdicts.append(Status.HELD if line.k >= expected.at_least else Status.BROKEN)
        else:
            verdicts.append(Status.UNKNOWN)
    for status in (Status.BROKEN, Status.UNKNOWN):
        if status in verdicts:
            return status, _why(expected, slope) if status is Status.UNKNOWN else ""
    return Status.HELD, ""


def _why(expected: ExpectedMemorySlope, slope: MemorySlope) -> str:
    if slope.line:
        return f"the peaks lie on no line: R² {slope.line.r2:.2f} is less than {expected.fit:g}"
    evidence = sum(stage.is_evidence for stage in slope.stages)
    return f"the memory rose above all earlier peaks in {evidence} stages, and a line needs {FEWEST_STAGES}"


def _verdict(expected: ExpectedMemorySlope, history: History, frames: Frames, node: str | None) -> Verdict:
    staged = next((event for event in history.of(LoadStaged) if event.node == node), None)
    slope = memory_slope(frames.api_server, staged) if staged else None
    measured = ""
    if first_fault(history, node) is None:
        status, why = Status.UNKNOWN, f"not reached: {stop_reason(history)}"
    elif staged is None or len(staged.stages) < FEWEST_STAGES:
        whole = len(staged.stages) if staged else 0
        status, why = Status.UNKNOWN, f"the load had {whole} whole stages, and a line needs {FEWEST_STAGES}"
    elif slope is None:
        status, why = Status.UNKNOWN, f"there is no {MEMORY} of one and the same server before and in every stage"
    else:
        status, why = judge(expected, slope)
        measured = _measured(slope, staged.form, history)
    return Verdict(
        check="containment-memory-slope",
        expectation="An API server's memory grows with each byte of concurrent LISTs by a factor k within bounds",
        bound=_bound(expected),
        measured=measured,
        status=status,
        step=Step.VERIFY_TAINT,
        why=why,
        node=node,
    )


def _measured(slope: MemorySlope, form: str, history: History) -> str:
    started = history.last(RunStarted)
    version = started.server_version if started else "of unknown version"
    k = f"k = {slope.line.k:.2f}, R² {slope.line.r2:.2f}" if slope.line else f"k ≤ {slope.most:.2f}"
    return f"{k} ({form}, server {version})"


def _bound(expected: ExpectedMemorySlope) -> str:
    least = "" if expected.at_least is None else f"{expected.at_least:g} ≤ "
    most = "" if expected.at_most is None else f" ≤ {expected.at_most:g}"
    return f"{least}k{most}"
