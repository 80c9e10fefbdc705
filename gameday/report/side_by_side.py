"""Two runs of one plan side by side: verdicts, times, chain hops and versions. Pure, except for writing the page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from pydantic import BaseModel, Field

from gameday.checks.node_diff import node_snapshot
from gameday.checks.verdict import Verdict
from gameday.errors import RefusedError
from gameday.history.events import GpusIdentified
from gameday.plain_file import write_whole
from gameday.report.compare import LEAST_S, OVER_PEAK, is_slower
from gameday.report.durations import durations
from gameday.report.page import environment
from gameday.report.run_folder import RunFolder, load_run_folder
from gameday.report.sections.chain import build as chains_of
from gameday.report.summarise import summarise
from gameday.report.summary import Summary

_DRIVER_LABEL = "nvidia.com/cuda.driver-version.full"


class Times(BaseModel):
    """A time of both runs, seconds; None if a run did not measure it."""

    what: str
    first_s: float | None
    second_s: float | None

    @property
    def difference_s(self) -> float | None:
        """Return the second run's time minus the first one's."""
        return None if self.first_s is None or self.second_s is None else self.second_s - self.first_s

    @property
    def slower(self) -> str:
        """Return the letter of the slower run; empty if they are alike, or if one is not measured."""
        if is_slower(self.first_s, self.second_s):
            return "A"
        return "B" if is_slower(self.second_s, self.first_s) else ""


class Expected(BaseModel):
    """An expectation of the plan and both runs' verdicts; None if a run has none on it."""

    expectation: str = Field(description="targets are called by their number, since two runs may break other nodes")
    first: Verdict | None
    second: Verdict | None

    @property
    def times(self) -> Times:
        first, second = (one.seconds if one else None for one in (self.first, self.second))
        return Times(what=self.expectation, first_s=first, second_s=second)


class Version(BaseModel):
    """A version in both runs; empty if the run's history does not have it."""

    what: str
    first: str
    second: str


class SideBySide(BaseModel):
    runs: tuple[Summary, Summary]
    plan_changed: bool
    durations: tuple[Times, ...]
    expectations: tuple[Expected, ...]
    hops: tuple[Times, ...]
    versions: tuple[Version, ...]
    over_peak: float = OVER_PEAK
    least_s: float = LEAST_S


def render_side_by_side(first: Path, second: Path, rendered_at: datetime) -> Path:
    """Write the page of two runs beside the second one's folder, and return its path.

    Raises:
        RefusedError: The folders hold the same run, or runs of different plans, or a history without its start.
        FileNotFoundError: A folder is missing.
        OSError: The page cannot be written.
    """
    compared = side_by_side(load_run_folder(first), load_run_folder(second))
    parent = second.resolve().parent
    path = parent / f"compare-{first.resolve().name}-{second.resolve().name}.html"
    links = [f"{quote(os.path.relpath(one.resolve(), parent))}/report.html" for one in (first, second)]
    page = environment("side_by_side").get_template("side_by_side.html")
    write_whole(path, page.render(c=compared, links=links, rendered_at=rendered_at))
    return path


def side_by_side(first: RunFolder, second: RunFolder) -> SideBySide:
    """Compare two runs. Raises RefusedError as `render_side_by_side` does."""
    a, b = summarise(first), summarise(second)
    if a is None or b is None:
        raise RefusedError("a run's history lacks its start, so nobody knows its plan", "compare two other runs")
    if a.run_id == b.run_id:
        raise RefusedError(f"both folders hold the run {a.run_id}", "give the folders of two runs")
    if a.plan != b.plan:
        raise RefusedError(f"{a.run_id} played {a.plan}, {b.run_id} played {b.plan}", "give two runs of the same plan")
    verdicts = dict(_verdicts(first)), dict(_verdicts(second))
    hops = dict(_hops(first)), dict(_hops(second))
    measured = [{str(number.measure): number.seconds for number in durations(run)} for run in (first, second)]
    return SideBySide(
        runs=(a, b),
        plan_changed=a.plan_sha256 != b.plan_sha256,
        durations=tuple(_times(measured[0], measured[1])),
        expectations=tuple(
            Expected(expectation=key[1], first=verdicts[0].get(key), second=verdicts[1].get(key))
            for key in dict.fromkeys([*verdicts[0], *verdicts[1]])
        ),
        hops=tuple(_times(*hops)),
        versions=tuple(
            Version(what=what, first=one, second=_versions(second)[what]) for what, one in _versions(first).items()
        ),
    )


def _times(first: Mapping[str, float | None], second: Mapping[str, float | None]) -> Iterator[Times]:
    for what in dict.fromkeys([*first, *second]):
        yield Times(what=what, first_s=first.get(what), second_s=second.get(what))


def _verdicts(run: RunFolder) -> Iterator[tuple[tuple[str, str, int], Verdict]]:
    """Yield each verdict with its check, its sentence without the targets' names, and its place among equal ones."""
    numbered = sorted(enumerate(run.target_names, 1), key=lambda pair: len(pair[1]), reverse=True)
    seen: dict[tuple[str, str], int] = {}
    for verdict in run.verdicts:
        sentence = verdict.expectation
        for number, node in numbered:
            sentence = sentence.replace(node, f"target {number}")
        place = seen[verdict.check, sentence] = seen.get((verdict.check, sentence), 0) + 1
        yield (verdict.check, sentence, place), verdict


def _hops(run: RunFolder) -> Iterator[tuple[str, float | None]]:
    """Yield when each hop of the detection chain was seen, seconds after the fault."""
    chains = chains_of(run).chains
    for number, chain in enumerate(chains, 1):
        of = f" (target {number})" if len(chains) > 1 else ""
        for row in chain.rows:
            yield f"{row.hop}{of}", row.end_s


def _versions(run: RunFolder) -> dict[str, str]:
    labels = [shot.labels for node in run.target_names if (shot := node_snapshot(run.history, node, "before"))]
    drivers = {gpu.driver for seen in run.history.of(GpusIdentified) for gpu in seen.gpus}
    drivers |= {of_node.get(_DRIVER_LABEL, "") for of_node in labels}
    return {
        "gpu-gameday": run.started.gameday_version if run.started else "",
        "Kubernetes": run.started.server_version if run.started else "",
        "NVIDIA driver": ", ".join(sorted(drivers - {""})),
        "Detector": run.named_detector or "",
    }
