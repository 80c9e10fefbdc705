"""The seasons of several clusters on one page: a row per cluster, even if its season did not begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from pydantic import AwareDatetime

from gameday.checks.outcome import RunOutcome, ended_with, worst_exit_code
from gameday.exit_codes import ExitCode
from gameday.report.markdown import markdown
from gameday.runs.pages import PageModel, RenderedPage, write_page
from gameday.runs.season_record import SeasonResult
from gameday.values.results import Cleanliness

FORMAT = 1
"""The format of clusters.json; raised if an existing field changes its meaning or goes."""


class ClusterSeason(PageModel):
    """The season of one cluster."""

    cluster: str
    code: ExitCode
    why: str
    """Reason, in one sentence."""
    game_days: Mapping[str, int] | None = {}
    """Number of its game-days by their end, such as Passed, or Running if it has not ended; None: not known."""
    started: AwareDatetime | None = None
    """Time of its start; None for a season that did not begin."""
    ended: AwareDatetime | None = None
    """Time of its end; None also for a season that had not ended when this was written."""
    page: str = ""
    """URL of its flow run in Prefect; empty for a season that Prefect did not take."""

    @property
    def state(self) -> str:
        """The end in a word, such as Passed or Refused."""
        return self.code.name.capitalize()

    def count(self, state: str) -> int | None:
        """Return how many of its game-days ended in this state; None if that is not known."""
        return None if self.game_days is None else self.game_days.get(state, 0)

    @property
    def took_s(self) -> float | None:
        """Seconds from its start to its end; None if one of them is missing."""
        return (self.ended - self.started).total_seconds() if self.started and self.ended else None


class ClusterSeasons(PageModel):
    """The seasons that were started together."""

    id: str
    plans: tuple[str, ...]
    """The plans that were asked for; empty: every shipped one that is not dangerous."""
    started: AwareDatetime
    ended: AwareDatetime
    clusters: tuple[ClusterSeason, ...]
    stopped: str = ""
    """Reason why they were stopped before their end; empty if they were not."""

    @property
    def result(self) -> SeasonResult:
        """The worst of their ends, by the rules of `worst_exit_code`, and one sentence."""
        ended = [ended_with(one.code) for one in self.clusters]
        ended += [(RunOutcome.ABORTED, Cleanliness.CLEAN)] if self.stopped else []
        count = len(self.clusters)
        counts = Counter(one.state.lower() for one in self.clusters)
        said = f"{count} cluster{'' if count == 1 else 's'}: " + ", ".join(
            f"{n} {state}" for state, n in counts.items()
        )
        stopped = f" Stopped: {self.stopped}." if self.stopped else ""
        return SeasonResult(exit_code=worst_exit_code(ended), why=f"{said}.{stopped}")

    @property
    def states(self) -> tuple[str, ...]:
        """The ends of game-days, the most frequent first."""
        counts: Counter[str] = Counter()
        for one in self.clusters:
            counts.update(one.game_days or {})
        return tuple(name for name, _ in counts.most_common())

    @property
    def markdown(self) -> str:
        """The page's table and sentence."""
        return markdown("runs", "clusters.md", seasons=self)


def judged(verdict: ExitCode | None, state: str, message: str, *, began: bool) -> tuple[ExitCode, str]:
    """Return what a season's flow run says at its end: an exit code, and why.

    Args:
        verdict: The exit code of its tags; None if it has none.
        state: The last state's name in Prefect.
        message: The state's message.
        began: Whether the season began.
    """
    if not began:
        return ExitCode.ABORTED, message or f"it was {state.lower()} before it began"
    if verdict is None:
        said = f": {message.rstrip('.')}" if message else ""
        return ExitCode.UNKNOWN, f"it ended as {state} without a verdict{said}; `gameday reap` undoes what it left"
    return verdict, message


def render_cluster_seasons(
    folder: Path, seasons: ClusterSeasons, rendered_at: datetime
) -> RenderedPage[ClusterSeasons]:
    """Write clusters.html and clusters.json into a folder that is made for them; raises as `write_page` does."""
    folder.mkdir(parents=True, exist_ok=True)
    also = {"format": FORMAT, **seasons.result.model_dump()}
    return write_page(folder / "clusters", "clusters.html", seasons, rendered_at, also=also)
