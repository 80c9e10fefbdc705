"""A season's own record beside its runs' folders: season.json, from which its page can be drawn again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import Field

from gameday.checks.outcome import EXIT_CODES, RunOutcome, RunResult, worst_exit_code
from gameday.documents.fields import Duration
from gameday.errors import RefusedError
from gameday.runs.record import GroupRecord
from gameday.values.models import FolderName, FrozenModel
from gameday.values.results import Cleanliness

SEASON_FILE = "season.json"
_TOO_LATE = (
    "at its time other runs held its nodes, or no further node might be broken; by its turn its usual duration would "
    "have passed the end of the budget"
)
APPROVAL_FILE = "approval.jsonl"
"""The file of the question for approval and its answer, as events of a history; only in a season that had to ask."""


class LeftOut(FrozenModel):
    """A plan that was not run."""

    plan: str
    title: str
    why: str


class ArmRun(FrozenModel):
    """The place of a run in the comparison of its plan's arms."""

    comparison: FolderName = Field(
        description="the comparison's id, and the name of its folder, which holds the run's own"
    )
    arm: str
    repetition: int = Field(description="counted from 1")


class DrawnTime(FrozenModel):
    """The time that a random season drew for a run. Seconds count from the moment at which the season began to play."""

    at_s: float = Field(description="when the run begins, if its nodes are free")
    latest_s: float = Field(description="after this its usual duration would pass the end of the budget")
    seed: int = Field(description="chooses the run's nodes and GPUs")


class DrawnNotPlaced(LeftOut):
    """A game-day that a random season drew, but for which it has no time or no nodes."""

    at_s: float = Field(description="when it would have begun, in seconds as in DrawnTime")


class RandomSettings(FrozenModel):
    """A random season: plans, nodes and times are drawn from the season's seed."""

    budget: Duration
    mean_gap: Duration = Field(description="mean of the exponential gaps between the beginnings of two game-days")
    not_placed: tuple[DrawnNotPlaced, ...] = ()
    late: tuple[str, ...] = Field(default=(), description="runs that had their turn too late for the budget")


class Assignment(FrozenModel):
    """A run of the season: its plan and the nodes chosen for it."""

    run_id: FolderName
    plan: str = Field(description="the plan's own name")
    asked_as: str = Field(description="shipped plan's name, or the path of a plan file")
    targets: tuple[str, ...]
    arm: ArmRun | None = Field(default=None, description="None for a run of a plan without arms")
    drawn: DrawnTime | None = Field(default=None, description="None in a season that is not random")

    def reports(self, reports: Path) -> Path:
        """Return the folder that the run's own folder is made in: the comparison's, or the season's own `reports`."""
        return reports / self.arm.comparison if self.arm else reports


class WatchingGuest(FrozenModel):
    """The guest that watched a season in place of our own detector."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


class DirtyNode(FrozenModel):
    """A node that a run left quarantined in a rehearsal with a guest: no further run begins on it."""

    node: str
    run_id: str
    plan: str

    def __str__(self) -> str:
        return f"{self.node} was left dirty by run {self.run_id} ({self.plan}) and taken out"


class SeasonRecord(GroupRecord):
    """A season: its runs, and the plans that are not among them."""

    FILE = SEASON_FILE

    guest: WatchingGuest | None = Field(default=None, description="None: no guest watched")
    trigger: Literal["rehearsal", "manual", "scheduled"]
    seed: int
    at_once: int = Field(description="nodes that might be broken at once")
    places: tuple[Assignment, ...]
    left_out: tuple[LeftOut, ...]
    dirty_nodes: tuple[DirtyNode, ...] = Field(default=(), description="nodes on which no further run began")
    random: RandomSettings | None = Field(default=None, description="None: every plan was to be played once")

    def as_ended(self, stopped: str, dirty_nodes: Sequence[DirtyNode] = (), late: Sequence[str] = ()) -> SeasonRecord:
        """Return the record of the season as it ends now; the arguments as the fields of these names."""
        update: dict[str, object] = {
            "ended": datetime.now(UTC),
            "stopped": stopped,
            "dirty_nodes": tuple(dirty_nodes),
            "random": self.random and self.random.model_copy(update={"late": tuple(late)}),
        }
        return self.model_copy(update=update)

    def why_not_begun(self, place: Assignment) -> str:
        """Return why a run of the season that left no history did not begin."""
        dirty = next((f"its node {one}" for one in self.dirty_nodes if one.node in place.targets), "")
        if self.random and place.run_id in self.random.late:
            return _TOO_LATE
        return dirty or self.stopped or "the season ended before it began"


class SeasonResult(FrozenModel):
    exit_code: int
    why: str

    def with_also(self, sentence: str) -> SeasonResult:
        """Return the result with one more sentence, which may be empty."""
        return self.model_copy(update={"why": f"{self.why} {sentence}".strip()})


def refuse_left_out(left_out: Sequence[LeftOut]) -> None:
    """Refuse if a plan is left out. Raises RefusedError with the first one's reason.

    A comparison plays all its arms or none.
    """
    if left_out:
        raise RefusedError(left_out[0].why)


def fold_season(
    results: Sequence[RunResult], stopped: str = "", what: str = "season", also: Sequence[RunOutcome] = ()
) -> SeasonResult:
    """Fold the runs' results into the exit code and one sentence of the season, or of what `what` names.

    The exit code is that of `worst_exit_code`. A season that was stopped counts as one more run that was aborted,
    unless every run was refused: then nothing was changed, and the exit code is REFUSED. `also` are the outcomes of
    what was judged over the runs, which count like those of further runs.
    """
    if not results:
        return SeasonResult(exit_code=EXIT_CODES[RunOutcome.REFUSED], why=stopped or "No plan was run.")
    ended = [(result.outcome, result.cleanliness) for result in results]
    ended += [(outcome, Cleanliness.CLEAN) for outcome in also]
    code = worst_exit_code(ended)
    if stopped and code != EXIT_CODES[RunOutcome.REFUSED]:
        code = worst_exit_code([*ended, (RunOutcome.ABORTED, Cleanliness.CLEAN)])
    return SeasonResult(exit_code=code, why=_tally(results, stopped, what))


def _tally(results: Sequence[RunResult], stopped: str, what: str) -> str:
    counts = [(outcome, sum(result.outcome is outcome for result in results)) for outcome in RunOutcome]
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts if count)
    dirty = sum(result.cleanliness is not Cleanliness.CLEAN for result in results)
    left = f"; {dirty} left the cluster dirty, or not provably clean" if dirty else "; the cluster is clean"
    return f"{len(results)} game-day{'' if len(results) == 1 else 's'}: {said}{left}." + (
        f" The {what} was stopped: {stopped}." if stopped else ""
    )
