"""The runs of a season as Prefect subflows, in threads of the season's process."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from gameday.checks.outcome import RunResult
from gameday.errors import ControlError, KubernetesError
from gameday.flows.approval import SeasonApproval
from gameday.flows.choices import GivenPlan
from gameday.flows.game_day import game_day
from gameday.flows.invocation import invocation
from gameday.history.room import refused_where_not_written
from gameday.ledger.entries import Header
from gameday.plan.load import LoadedPlan
from gameday.report.run_folder import load_run_folder
from gameday.run.record import HISTORY_FILE
from gameday.run.season_member import SeasonMember
from gameday.runs.assignment import RunQueue
from gameday.runs.comparison_record import comparisons
from gameday.runs.lab_settings import ChangedLab
from gameday.runs.plans import ChosenPlan, plans_that_run_alone
from gameday.runs.play import OpenSeason, run_all
from gameday.runs.season_record import Assignment, SeasonRecord


@dataclass(frozen=True)
class SeasonRuns:
    """A season's runs, ready to be played."""

    record: SeasonRecord
    chosen: Sequence[ChosenPlan]
    approved: SeasonApproval
    profile: str | None
    """Path of the cluster profile; None for GAMEDAY_* of the environment."""
    reports: Path
    """Folder that the runs' own folders are made in."""

    def play(self, season: OpenSeason) -> list[Path]:
        """Play all runs, as many at a time as allowed, and keep the records of their comparisons up to date.

        Returns:
            Folders of the runs that did not end by themselves; their reports have to be rendered again.
        """
        record, lab = self.record, season.kubernetes.profile.lab_control
        fresh = {one.plan.name for one in self.chosen if lab and one.begins_fresh}
        compared = comparisons(self.record, self.chosen, fresh)
        with refused_where_not_written(self.reports):
            for one in compared:
                one.save(self.reports / one.id)
        queue = RunQueue(record.places, record.at_once, plans_that_run_alone(self.chosen))
        changed = ChangedLab(lab, season.kubernetes, self._header(), self._longest()) if lab and fresh else None
        run_all(season, queue, record.at_once, partial(self._play_one, changed), self.reports)
        if changed:
            with suppress(ControlError, KubernetesError):  # a lab that is gone needs no settings; else the reaper comes
                changed.restore()
        for one in compared:
            ended = {"ended": datetime.now(UTC), "stopped": season.stopped}
            one.model_copy(update=ended).save(self.reports / one.id)
        return [self._folder(place) for place in record.places if place.run_id in season.died]

    def _folder(self, place: Assignment) -> Path:
        return place.reports(self.reports) / place.run_id

    def _header(self) -> Header:
        record, plans = self.record, ", ".join(one.plan.name for one in self.chosen)
        asked = invocation(record.trigger, record.command)
        return Header.of_this_process(record.id, plans, record.started, asked.process_flow_run)

    def _longest(self) -> timedelta:
        return sum((one.longest_wait for one in self.chosen), timedelta())

    def _play_one(self, lab: ChangedLab | None, place: Assignment) -> RunResult:
        """Play one run in this thread. A run of an arm gets the lab settings that the arm asks for.

        Returns:
            The run's result; if the flow run broke off, the result of the history that it left.

        Raises:
            ControlError: The lab refuses the arm's settings, or does not start with them.
        """
        result: object
        if lab and place.arm:
            plan = self._chosen(place)
            if plan.begins_fresh:
                lab.configure(plan.rehearsal_of(place.arm.arm))
        try:
            state = game_day(
                plan=place.asked_as,
                profile=self.profile,
                reports=str(place.reports(self.reports)),
                trigger=self.record.trigger,
                run_id=place.run_id,
                command=self._command(place),
                member=self._member(place),
                given=GivenPlan(self._loaded(place)),
                return_state=True,
            )
            result = state.result(raise_on_failure=False)
        except Exception as error:  # Prefect's own: a lost server does not change the run's result
            result = error
        if isinstance(result, RunResult):
            return result
        folder = self._folder(place)
        if isinstance(result, BaseException) and not (folder / HISTORY_FILE).is_file():
            raise result
        return load_run_folder(folder).result

    def _chosen(self, place: Assignment) -> ChosenPlan:
        return next(one for one in self.chosen if one.name == place.asked_as)

    def _loaded(self, place: Assignment) -> LoadedPlan:
        return self._chosen(place).loaded.of_arm(place.arm.arm if place.arm else None)

    def _command(self, place: Assignment) -> str | None:
        """Return the shell line that plays the run's arm again by itself; None if the flow's own line does.

        A plan at a scale is only rehearsed, with all its arms.
        """
        if place.arm is None:
            return None
        if self._loaded(place).at[:1] == ("scales",):
            return self.record.command
        profile = ["--profile", self.profile] if self.profile else []
        return shlex.join(["gameday", "run", place.asked_as, "--arm", place.arm.arm, *profile])

    def _member(self, place: Assignment) -> SeasonMember:
        siblings = [other for other in self.record.places if other.run_id != place.run_id]
        sibling_plans = [plan for other in self.chosen if other.plan.name != place.plan for plan in other.played]
        return SeasonMember(
            season=self.record.id,
            seed=place.drawn.seed if place.drawn else self.record.seed,
            targets=place.targets,
            sibling_nodes=frozenset(node for other in siblings for node in other.targets) - set(place.targets),
            sibling_alerts=frozenset(
                name for plan in sibling_plans for alert in plan.expect.alerts for name in alert.names
            ),
            approval=self.approved.of(place.run_id),
        )
