"""A person's approval before anything is broken, given in the Prefect UI or in advance on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

from gameday.cluster.profile import ClusterProfile
from gameday.documents.fields import format_duration
from gameday.errors import RefusedError
from gameday.flows.invocation import is_started_by_hand
from gameday.flows.question import Answer, ask
from gameday.guard.check import guard_before
from gameday.guard.preview import approval_question, escape_markdown
from gameday.history.events import ApprovalAnswered, ApprovalAsked
from gameday.history.journal import Journal
from gameday.history.room import refused_where_not_written
from gameday.plan.models import Plan
from gameday.run.run import Run
from gameday.run.season_member import Approval
from gameday.run.targets import Targets, unfit_targets
from gameday.runs.plans import ChosenPlan
from gameday.runs.play import OpenSeason
from gameday.runs.season_record import APPROVAL_FILE, Assignment, LeftOut

_POLL_S = 1.0


def approve(run: Run, targets: Targets, approved_by: str | None) -> None:
    """Return once a person has approved the run. Ask nobody unless plan or profile require it, or a person started it.

    Args:
        run: The run.
        targets: The nodes that the person is asked about.
        approved_by: The person who has approved already; None or empty to ask in the Prefect UI.

    Raises:
        RefusedError: The person refused, nobody answered in time, or the cluster changed its state meanwhile.
        AbortedError: The run was cancelled.
    """
    given = run.member.approval if run.member else None
    timeout = _time_to_answer(run.plan, run.profile)
    if timeout is None and given is None:
        return
    if approved_by:
        run.note(ApprovalAnswered(approved=True, by=approved_by, via=_way_of_advance()))
    elif run.member and given:
        season, at = run.member.season, given.at
        run.note(
            ApprovalAnswered(
                approved=True, by=given.by, via=given.via, season=season, answered_at=at, comment=given.comment
            )
        )
    elif timeout is not None:
        _ask_for_run(run, targets, timeout)


@dataclass(frozen=True)
class SeasonApproval:
    """A person's approval of a season, and the runs that may be played."""

    approval: Approval | None
    """The approval for the runs that need it; None if no run needs it, or if it was not given."""
    runs: tuple[Assignment, ...]
    left_out: tuple[LeftOut, ...]
    """Plans that need approval and did not get it."""
    asked: frozenset[str] = frozenset()
    """Ids of the runs that the approval is for."""

    def of(self, run_id: str) -> Approval | None:
        """Return the approval of a run, or None if it needs none."""
        return self.approval if run_id in self.asked else None


def approve_season(
    season: OpenSeason,
    cluster: ClusterProfile,
    chosen: Sequence[ChosenPlan],
    assigned: Sequence[Assignment],
    approved_by: str | None,
    folder: Path,
) -> SeasonApproval:
    """Ask once for all runs of a season that need approval: by plan or profile, or because a person started the season.

    Question and answer are kept in the season's folder (APPROVAL_FILE).

    Args:
        season: The open season.
        cluster: The cluster's profile, which may ask for approval of every plan.
        chosen: The season's plans.
        assigned: The season's runs.
        approved_by: The person who approved on the command line; None: ask in the Prefect UI.
        folder: The season's folder.

    Raises:
        AbortedError: The season was stopped meanwhile.
        OSError: The folder cannot be written.
    """
    loaded = {one.plan.name: one.loaded for one in chosen}
    plans = {run.run_id: loaded[run.plan].of_arm(run.arm.arm if run.arm else None).plan for run in assigned}
    timeouts = {run_id: _time_to_answer(plan, cluster) for run_id, plan in plans.items()}
    asking = [run for run in assigned if timeouts[run.run_id] is not None]
    if not asking:
        return SeasonApproval(None, tuple(assigned), ())
    asked = frozenset(run.run_id for run in asking)
    if approved_by:
        given = Approval(by=approved_by, at=season.kubernetes.clock.now(), via=_way_of_advance())
        return SeasonApproval(given, tuple(assigned), (), asked)
    timeout = min(filter(None, (timeouts[run.run_id] for run in asking)))
    try:
        answer = _ask_for_season(season, _season_question(season.id, cluster, asking, plans), timeout, folder)
        why = "" if answer.approved else _refusal(answer)
    except RefusedError as error:
        why = f"it needs approval, and {error.why}"
    if why:
        left_out = (LeftOut(plan=run.plan, title=plans[run.run_id].title, why=why) for run in asking)
        return SeasonApproval(None, tuple(run for run in assigned if run not in asking), tuple(left_out))
    given = Approval(by=answer.name, at=season.kubernetes.clock.now(), via="Prefect", comment=answer.comment)
    return SeasonApproval(given, tuple(assigned), (), asked)


def _time_to_answer(plan: Plan, cluster: ClusterProfile) -> timedelta | None:
    """Return how long a person has to answer, or None if nobody has to be asked."""
    both = (plan.approval, cluster.approval)
    if required := [one.within for one in both if one.required]:
        return min(required)
    if not is_started_by_hand():
        return None
    # The wait counts towards the run's longest duration, which nobody has set with a wait in mind.
    return min(*(one.within for one in both), cluster.guardrails.longest_run(plan.guardrails) / 2)


def _way_of_advance() -> Literal["Prefect", "command line"]:
    """Return how an approval that was given in advance was given."""
    return "Prefect" if is_started_by_hand() else "command line"


def _refusal(answer: Answer) -> str:
    return f"{answer.name} refused approval" + (f": {answer.comment}" if answer.comment else "")


def _ask_for_run(run: Run, targets: Targets, timeout: timedelta) -> None:
    """Ask for approval of one run; once it is given, check targets and guardrails again."""

    def wait(url: str, answered: Callable[[], Answer | None]) -> Answer | None:
        run.note(ApprovalAsked(within_s=timeout.total_seconds(), where=url))
        return run.wait(f"approval at {url}", timeout, answered, every_s=_POLL_S)

    answer = ask(run.id, approval_question(run, targets), timeout, wait)
    run.note(ApprovalAnswered(approved=answer.approved, by=answer.name, via="Prefect", comment=answer.comment))
    if not answer.approved:
        raise RefusedError(_refusal(answer))
    if unfit := unfit_targets(run, targets):
        raise RefusedError(f"while the run waited for approval: {'; '.join(unfit)}", "run it again")
    guard_before(run, targets)


def _ask_for_season(season: OpenSeason, question: str, timeout: timedelta, folder: Path) -> Answer:
    with refused_where_not_written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        journal = Journal(folder / APPROVAL_FILE, season.kubernetes.clock)
    try:
        answer = ask(season.id, question, timeout, partial(_wait_in_season, season, timeout, journal))
        given = {"by": answer.name, "comment": answer.comment, "season": season.id}
        journal.append(ApprovalAnswered(approved=answer.approved, via="Prefect", **given))
    finally:
        journal.close()
    with refused_where_not_written(folder):
        if journal.failed:
            raise journal.failed
    return answer


def _wait_in_season(
    season: OpenSeason, timeout: timedelta, journal: Journal, url: str, answered: Callable[[], Answer | None]
) -> Answer | None:
    journal.append(ApprovalAsked(within_s=timeout.total_seconds(), where=url))
    clock = season.kubernetes.clock
    deadline = clock.monotonic() + timeout.total_seconds()
    while (answer := answered()) is None and (left := deadline - clock.monotonic()) > 0:
        season.abort.sleep(min(_POLL_S, left))
    return answer


def _season_question(
    season: str, cluster: ClusterProfile, runs: Sequence[Assignment], plans: Mapping[str, Plan]
) -> str:
    """Return Markdown for the person who is asked: the plans, their faults and their nodes."""
    head = f"Season {escape_markdown(season)} on cluster {escape_markdown(cluster.name)}: {len(runs)} game-days"
    rows = [
        f"* **{escape_markdown(plan.title)}**: fault `{plan.fault.type}` on "
        f"{', '.join(map(escape_markdown, run.targets))}, in for {format_duration(plan.fault.hold)} at most; "
        f"repair: {plan.recover.repair}"
        for run in runs
        for plan in (plans[run.run_id],)
    ]
    return "\n".join(
        [f"{head} need approval", "", *rows, "", "Without it these are left out; the season's other game-days run."]
    )
