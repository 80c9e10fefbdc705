"""The season on one page: every plan's verdicts, what got slower, what nothing notices, what people promised to do.

Figures come from the summaries and coverage rows that the runs left; only a run without them, because it was killed, is
read whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from gameday.checks.outcome import RunOutcome
from gameday.plan.models import Plan
from gameday.report.compare import Trend, trends
from gameday.report.earlier_runs import MOST_RUNS, carried_actions
from gameday.report.notes import ActionItem, Notes
from gameday.report.outage import RULE, OutageTotal, outage_totals
from gameday.report.summary import DurationKind
from gameday.runs.catalog import RunCatalog
from gameday.runs.matrix import CoverageMatrix, joined
from gameday.runs.pages import PageModel, RenderedPage, write_page
from gameday.runs.run_list import CatalogRun, RunningRun
from gameday.runs.run_row import judged_run
from gameday.values.results import Cleanliness

FORMAT = 1
"""The format of digest.json; raised if an existing field changes its meaning or goes."""
MOST_MARKS = 20
"""Most verdicts shown of a plan's history: a quarter of weekly runs, and some by hand."""
_MEASURES = (DurationKind.ALERT, DurationKind.TAINT, DurationKind.RETURN)


class Mark(PageModel):
    run_id: str
    folder: str
    started: datetime
    outcome: RunOutcome
    cleanliness: Cleanliness


class PlanRow(PageModel):
    """A plan on a cluster. `history` has the oldest first; `trends` are those in the newest run's own report."""

    plan: str
    title: str
    cluster: str
    runs: int
    in_window: int
    newest: Mark
    why: str
    history: tuple[Mark, ...]
    changed: bool
    """True if the newest verdict differs from the one before."""
    trends: tuple[Trend, ...]


class ClusterCoverage(PageModel):
    """The newest run of each plan on one cluster; a rehearsal says nothing about what is noticed on another."""

    cluster: str
    matrix: CoverageMatrix


class OpenAction(PageModel):
    """An open action item. `page`: path of its report in the reports folder. `source`: the node or run it is about."""

    page: str
    source: str
    action: ActionItem
    overdue: bool


class Digest(PageModel):
    """The content of digest.json. Figures count the runs that began in the window; trends look further back."""

    start: datetime
    end: datetime
    headline: str
    running: tuple[RunningRun, ...]
    """Runs that were under way when this was made; all other figures leave them out."""
    outcomes: dict[RunOutcome, int]
    unclean: tuple[Mark, ...]
    """Runs of the window that left the cluster dirty or unproven."""
    unclean_before: tuple[Mark, ...]
    """Unclean runs from before the window. They may never be proved clean, so they are listed but colour nothing."""
    plans: tuple[PlanRow, ...]
    never_run: tuple[tuple[str, str], ...]
    """Name and title of the known plans without a run."""
    coverage: tuple[ClusterCoverage, ...]
    incidents: int
    outages: tuple[OutageTotal, ...]
    actions: tuple[OpenAction, ...]
    problems: tuple[str, ...]


def digest_of(catalog: RunCatalog, plans: Sequence[Plan], start: datetime, end: datetime) -> Digest:
    """Fold the catalog into a digest; a damaged run's folder does not make it raise.

    `plans`: all plans that could be run.
    """
    past = [run for run in catalog.runs if run.summary.started <= end]
    window = [run for run in past if run.summary.started >= start]
    groups: dict[tuple[str, str, bool], list[CatalogRun]] = {}
    for run in reversed(past):
        groups.setdefault(run.summary.series, []).append(run)
    rows = tuple(_row(catalog, group, start) for _, group in sorted(groups.items()))
    actions, unread = _actions(catalog, groups.values(), end)
    coverage, unjudged = _coverage(catalog, [group[-1] for group in groups.values()])
    ran = {run.summary.plan for run in past} | {plan for one in catalog.groups for plan in one.plans}
    ran |= {one.plan for one in catalog.running}
    doubts = [f"{one.kind.capitalize()} {one.folder.name}: {one.doubt}" for one in catalog.groups if one.doubt]
    unclean = [_mark(run) for run in past if run.summary.cleanliness is not Cleanliness.CLEAN]
    return Digest(
        start=start,
        end=end,
        headline=_headline(window, rows, len(catalog.running)),
        running=catalog.running,
        outcomes={outcome: Counter(run.summary.outcome for run in window)[outcome] for outcome in RunOutcome},
        unclean=tuple(mark for mark in unclean if mark.started >= start),
        unclean_before=tuple(mark for mark in unclean if mark.started < start),
        plans=rows,
        never_run=tuple((plan.name, plan.title) for plan in plans if plan.name not in ran),
        coverage=coverage,
        outages=outage_totals((run.summary.rehearsal, run.summary.out_of_work) for run in window),
        incidents=sum(start <= one.incident.start <= end for one in catalog.incidents),
        actions=actions,
        problems=(
            *catalog.unreadable,
            *unjudged,
            *unread,
            *(one.problem for one in catalog.incidents if one.problem),
            *doubts,
        ),
    )


def _coverage(catalog: RunCatalog, newest: Sequence[CatalogRun]) -> tuple[tuple[ClusterCoverage, ...], list[str]]:
    """Return a matrix per cluster, and what could not be judged.

    One run is in memory at a time: a run of 500 nodes takes a hundred megabytes.
    """
    made: dict[str, list[CoverageMatrix]] = {}
    problems = []
    for run in newest:
        try:
            if row := run.row or ((found := judged_run(run.folder)) and found.row):
                made.setdefault(catalog.cluster_of(run), []).append(row)
        except Exception as error:  # one damaged run, or a bug that it shows, must not keep the others from the page
            problems.append(f"{run.folder.name}: its coverage could not be judged ({type(error).__name__}: {error})")
    coverage = (ClusterCoverage(cluster=cluster, matrix=joined(single)) for cluster, single in sorted(made.items()))
    return tuple(one for one in coverage if one.matrix.rows), problems


def _row(catalog: RunCatalog, group: Sequence[CatalogRun], start: datetime) -> PlanRow:
    newest, before = group[-1], [run.summary for run in group[:-1]]
    numbers = [number for number in newest.summary.numbers if number.measure in _MEASURES]
    return PlanRow(
        plan=newest.summary.plan,
        title=newest.summary.title,
        cluster=catalog.cluster_of(newest),
        runs=len(group),
        in_window=sum(run.summary.started >= start for run in group),
        newest=_mark(newest),
        why=newest.summary.why,
        history=tuple(_mark(run) for run in group[-MOST_MARKS:]),
        changed=bool(before) and before[-1].outcome is not newest.summary.outcome,
        trends=trends(numbers, before[-MOST_RUNS:]),
    )


def _mark(run: CatalogRun) -> Mark:
    one = run.summary
    return Mark(
        run_id=one.run_id,
        folder=run.folder.name,
        started=one.started,
        outcome=one.outcome,
        cleanliness=one.cleanliness,
    )


def _actions(
    catalog: RunCatalog, plans: Iterable[Sequence[CatalogRun]], today: datetime
) -> tuple[tuple[OpenAction, ...], list[str]]:
    """Return the open actions of post-mortems and of plans' runs, and what could not be read.

    Overdue ones come first, then the others by due date, and last those without a date.
    """
    found = [
        (f"{quote(one.folder.name)}/post-mortem.html", one.incident.node, action)
        for one, action in catalog.open_actions
    ]
    unread: list[str] = []
    for runs in plans:
        carried, problems = carried_actions([(run.folder, run.summary) for run in runs], Notes())
        unread += problems
        folders = {run.summary.run_id: run.folder.name for run in runs}
        found += [(f"{quote(folders[one.run_id])}/report.html", one.run_id, one.action) for one in carried]
    made = [
        OpenAction(page=page, source=source, action=action, overdue=bool(action.due and action.due < today.date()))
        for page, source, action in found
    ]
    return tuple(sorted(made, key=lambda one: (one.action.due is None, str(one.action.due)))), unread


def _headline(window: Sequence[CatalogRun], rows: Sequence[PlanRow], running: int) -> str:
    still = f"{running} still run{'s' if running == 1 else ''}"
    if not window and running:
        return f"No game-day has ended in this window; {still}."
    if not window:
        return "No game-day was run in this window: nothing is known of these days."
    failed = sum(run.summary.outcome is RunOutcome.FAILED for run in window)
    other = sum(run.summary.outcome not in (RunOutcome.FAILED, RunOutcome.PASSED) for run in window)
    unclean = sum(run.summary.cleanliness is not Cleanliness.CLEAN for run in window)
    compared = [trend.regressed for row in rows if row.in_window for trend in row.trends if trend.regressed is not None]
    slower = sum(compared)
    held = len(window) - failed - other
    said = [f"{held} of {len(window)} game-days passed"]
    said += [f"{failed} failed"] if failed else []
    said += [f"{other} ended without a verdict"] if other else []
    said += [still] if running else []
    said += [f"{unclean} left the cluster unclean or unproven"] if unclean else []
    if slower:
        said.append(f"{slower} duration{'' if slower == 1 else 's'} regressed")
    else:
        said.append("nothing got slower" if compared else "durations not compared yet")
    return ", ".join(said) + "."


def render_digest(reports: Path, digest: Digest, rendered_at: datetime) -> RenderedPage[Digest]:
    """Write digest.html and digest.json into the reports folder; raises as `write_page` does."""
    return write_page(
        reports / "digest",
        "digest.html",
        digest,
        rendered_at,
        also={"format": FORMAT, "rendered_at": rendered_at},
        measures=_MEASURES,
        most_runs=MOST_RUNS,
        outage_rule=RULE,
    )
