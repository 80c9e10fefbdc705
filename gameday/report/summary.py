"""A run in a few lines, for the top of its report, and for digest, index and comparisons.

It is `summary` in report.json, so that looking at a hundred earlier runs reads a hundred small objects and judges
nothing again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.plain_file import open_plain, read_plain
from gameday.report.outage import OutOfWork
from gameday.values.results import Cleanliness

LARGEST_BYTES = 50_000_000
"""A larger report.json is no earlier run worth reading: an ordinary one has a tenth of a megabyte."""


_HEAD_BYTES = 256 * 1024
"""Ten times the summary of a run with 500 targets."""
_HEAD = re.compile(r'\{\s*"format": ?\d+,\s*(?:"rendered_at": ?"[^"]*",\s*)?"summary": ?')


class DurationKind(StrEnum):
    """The durations that runs are compared by."""

    ALERT = "time to alert"
    TAINT = "time to taint"
    RECOVER = "time to recover"
    QA = "time to QA pass"
    RETURN = "time to return"
    CANARY_UNDER_LOAD = "API canary under load"
    CANARY_GAP = "longest API canary gap"
    CANARY_AFTER = "API canary after the load"


class RunDuration(BaseModel):
    """A duration in seconds; None if it was not measured. `bound` is the plan's, as people see it."""

    model_config = ConfigDict(frozen=True)

    measure: DurationKind
    seconds: float | None = Field(allow_inf_nan=False)
    bound: str = ""
    status: Status | None = None
    dated: str = Field(default="", description="what dated it, how exactly, and when it was seen")


class Noticed(StrEnum):
    """The share of the expected alerts and taints by which the cluster saw the fault: all, some, none."""

    YES = "yes"
    PARTLY = "partly"
    NO = "no"
    UNKNOWN = "unknown"
    NOT_ASKED = "not asked"


class Summary(BaseModel):
    """A run's summary. Unknown keys are ignored, so that an older program reads a newer one's runs."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    plan: str
    title: str
    plan_sha256: str
    cluster: str = Field(description="what people call it")
    cluster_id: str = Field(description="alike for runs of one cluster: the UID of its kube-system, or a given word")
    rehearsal: bool = Field(description="no target is a real node, in a rehearsal or in another cluster")
    detector: str | None = Field(description="the detector that the plan names; None: it names none")
    fault: str | None
    targets: tuple[str, ...]
    started: AwareDatetime
    seconds: float = Field(allow_inf_nan=False, description="from the first record to the last")
    outcome: RunOutcome
    cleanliness: Cleanliness
    exit_code: int
    why: str
    noticed: Noticed
    numbers: tuple[RunDuration, ...]
    checks: dict[str, Status] = Field(description="check -> the worst of its verdicts")
    out_of_work: OutOfWork | None = Field(default=None, description="None in reports made before this was measured")

    @property
    def place(self) -> str:
        """The cluster as people call it, with a word about virtual GPUs."""
        return f"{self.cluster} (virtual GPUs)" if self.rehearsal else self.cluster

    @property
    def series(self) -> tuple[str, str, bool]:
        """Plan, cluster, and True if it is virtual: the same for runs that are compared with each other."""
        return self.plan, self.cluster_id, self.rehearsal

    def seconds_of(self, measure: DurationKind) -> float | None:
        return next((number.seconds for number in self.numbers if number.measure is measure), None)


def virtual_words(virtual: Sequence[bool], what: str = "game-days") -> str:
    """Return that the GPUs were virtual, with the number of game-days or nodes if not all; empty if all were real.

    Args:
        virtual: For each game-day or node, True if its GPUs are virtual.
        what: The plural for what is counted.
    """
    if not any(virtual):
        return ""
    return "virtual GPUs" if all(virtual) else f"virtual GPUs in {sum(virtual)} of {len(virtual)} {what}"


def read_summary(folder: Path) -> Summary | None:
    """Return the summary in a run folder's report.json, or None if there is none that can be read. Never raises."""
    path = folder / "report.json"
    try:
        if path.stat().st_size > LARGEST_BYTES:
            return None
        return Summary.model_validate(_at_the_head(path) or json.loads(read_plain(path))["summary"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, ValidationError):
        return None


def _at_the_head(path: Path) -> object:
    """Return the summary from the file's beginning alone, if it is there: a season's reports are a gigabyte.

    None if it is elsewhere, or if it is longer than what was read.
    """
    with open_plain(path) as file:
        head = file.read(_HEAD_BYTES).decode("utf-8", "ignore")
    found = _HEAD.match(head)
    if not found:
        return None
    try:
        return json.JSONDecoder().raw_decode(head, found.end())[0]
    except ValueError:
        return None
