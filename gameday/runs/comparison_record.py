"""A comparison's own record beside its game-days' folders: arms.json, from which its page can be drawn again."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import Field

from gameday.plan.arms import ExpectedRatio, PublishedFigure
from gameday.runs.plans import ChosenPlan
from gameday.runs.record import GroupRecord
from gameday.runs.run_list import ARMS_FILE
from gameday.runs.season_record import Assignment, SeasonRecord
from gameday.values.models import FrozenModel


class ArmRecord(FrozenModel):
    """An arm as it was played."""

    name: str
    title: str
    changes: tuple[str, ...] = Field(description="what it changes of the plan, as lines for people")
    may_break: tuple[str, ...]
    must_break: tuple[str, ...]


class ComparisonRecord(GroupRecord):
    """A comparison: its arms, and the game-days that play them, in the order in which they begin.

    Its id is also the name of its folder, which holds its game-days' own.
    """

    FILE = ARMS_FILE

    plan: str
    title: str
    hypothesis: str
    seed: int = Field(description="chose the nodes, once for all arms")
    repetitions: int
    arms: tuple[ArmRecord, ...]
    runs: tuple[Assignment, ...]
    fresh_servers: bool = Field(
        default=False, description="each game-day began in API servers just restarted, with its arm's settings"
    )
    expect: tuple[ExpectedRatio, ...] = Field(default=(), description="what the arms' figures must be to each other")
    published: tuple[PublishedFigure, ...] = Field(default=(), description="others' values of the figures")

    @property
    def targets(self) -> tuple[str, ...]:
        """The nodes that every game-day breaks."""
        return self.runs[0].targets

    def title_of(self, arm: str) -> str:
        """Return the title of the arm of this name."""
        return next(one.title for one in self.arms if one.name == arm)


def comparisons(
    season: SeasonRecord, chosen: Sequence[ChosenPlan], fresh: Collection[str] = ()
) -> list[ComparisonRecord]:
    """Return a record for each of the season's plans that has arms and for which nodes were found.

    `fresh` names the plans that begin each of their game-days with fresh API servers.
    """
    found = []
    for one in chosen:
        runs = tuple(run for run in season.places if run.plan == one.plan.name and run.arm)
        if not (one.plan.arms and runs and runs[0].arm):
            continue
        arms = (
            ArmRecord(
                name=arm.name,
                title=arm.heading,
                changes=tuple(arm.changes()),
                may_break=arm.may_break,
                must_break=arm.must_break,
            )
            for arm in one.plan.arms.compare
        )
        found.append(
            ComparisonRecord(
                id=runs[0].arm.comparison,
                plan=one.plan.name,
                title=one.plan.title,
                hypothesis=one.plan.hypothesis,
                cluster=season.cluster,
                command=season.command,
                seed=season.seed,
                repetitions=one.plan.arms.repetitions,
                arms=tuple(arms),
                runs=runs,
                started=season.started,
                fresh_servers=one.plan.name in fresh,
                expect=one.plan.arms.expect,
                published=one.plan.arms.published,
            )
        )
    return found
