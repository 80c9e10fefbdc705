"""The list of everything in a reports folder: one table, complete without a script, searched and filtered with one."""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from gameday.plain_file import write_whole
from gameday.report.compare import FEWEST_RUNS, LEAST_S, OVER_PEAK, Trend, trends
from gameday.report.earlier_runs import MOST_RUNS
from gameday.report.page import TEMPLATES, environment
from gameday.report.summary import DurationKind
from gameday.runs.catalog import RunCatalog
from gameday.runs.run_list import CatalogRun

_MEASURES = (DurationKind.ALERT, DurationKind.TAINT, DurationKind.RETURN)


@dataclass(frozen=True)
class PlanTrend:
    """A plan's headline time over its runs on one cluster: to the alert, else to the taint, else to the return."""

    newest: CatalogRun
    cluster: str
    runs: int
    trend: Trend | None
    """None where no run measured any of them."""


def plan_trends(catalog: RunCatalog) -> tuple[PlanTrend, ...]:
    """Return the trend of every plan on every cluster: those that regressed first, then by title."""
    groups: dict[tuple[str, str, bool], list[CatalogRun]] = {}
    for run in reversed(catalog.runs):
        groups.setdefault(run.summary.series, []).append(run)
    found = [PlanTrend(runs[-1], catalog.cluster_of(runs[-1]), len(runs), _headline(runs)) for runs in groups.values()]
    return tuple(sorted(found, key=lambda one: (not (one.trend and one.trend.regressed), one.newest.summary.title)))


def _headline(runs: list[CatalogRun]) -> Trend | None:
    """Return the trend of the first measure that any of the last runs has; `runs` oldest first."""
    shown = [run.summary for run in runs[-MOST_RUNS - 1 :]]
    measured = [m for m in _MEASURES if any(summary.seconds_of(m) is not None for summary in shown)]
    numbers = [number for number in shown[-1].numbers if number.measure in measured]
    return next(iter(sorted(trends(numbers, shown[:-1]), key=lambda trend: _MEASURES.index(trend.measure))), None)


def render_index(reports: Path, catalog: RunCatalog, rendered_at: datetime) -> Path:
    """Write index.html into the reports folder; raises OSError."""
    templates = environment("runs")
    script = (TEMPLATES / "runs" / "index.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = str(templates.globals["policy"]).replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    page = templates.get_template("index.html").render(
        catalog=catalog,
        runs=[(run, catalog.cluster_of(run)) for run in catalog.runs],
        rendered_at=rendered_at,
        trends=plan_trends(catalog),
        rule={"fewest": FEWEST_RUNS, "over_peak": OVER_PEAK, "least_s": LEAST_S, "most_runs": MOST_RUNS},
        measures=_MEASURES,
        has_digest=(reports / "digest.html").is_file(),
        index_script=Markup(script),  # noqa: S704 our own file
        policy=policy,
    )
    path = reports / "index.html"
    write_whole(path, page)
    return path
