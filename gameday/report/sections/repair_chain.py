"""The repair chain: the hops of its own repair that the cluster took, by whom, when, and how long each took."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from gameday.checks.facts import at_most, target_nodes
from gameday.checks.repair_chain import chain_end, hops_seen
from gameday.checks.verdict import Status
from gameday.history.events import NodeReplaced
from gameday.plan.repair_chain import ExpectedHop
from gameday.report.run_folder import RunFolder
from gameday.values.results import RepairHop

ORDER = 55
TITLE = "Repair chain"
GROUP = "Fault and signals"


class RepairRow(BaseModel):
    """A hop; `at` and the fields after it are None or empty if the cluster did not take it."""

    hop: str
    by: str
    kind: str = Field(description="of the hop 'repaired'")
    at: datetime | None
    offset_s: float | None = Field(description="seconds after the fault went in")
    took_s: float | None = Field(description="seconds since the hop before")
    since: str
    bound: str
    status: Status | None = Field(description="its verdict; None for a run without a readable plan")
    source: str


class RepairStory(BaseModel):
    """The repair of one target."""

    node: str | None
    successor: str = Field(description="the node that took the target's place; empty: none did")
    pool: str
    rows: tuple[RepairRow, ...]
    total_s: float | None = Field(description="seconds from the fault to the last hop that was taken")
    slowest: str | None
    stopped_at: str
    why: str
    left: tuple[str, ...] = Field(description="what the cluster left on the node; the game-day does not touch it")
    in_service: bool


class RepairStories(BaseModel):
    """A story per target; none if the game-day itself repairs."""

    stories: tuple[RepairStory, ...]

    @property
    def absent(self) -> str:
        """The reason why there is nothing to show; empty if there is something."""
        return "" if self.stories else "the game-day itself repairs in this plan, or the plan cannot be read"


def build(run: RunFolder) -> RepairStories:
    hands_off = run.plan is not None and run.plan.recover.is_hands_off
    return RepairStories(stories=tuple(_story(run, node) for node in target_nodes(run.history)) if hands_off else ())


def _story(run: RunFolder, node: str | None) -> RepairStory:
    assert run.plan is not None
    rows = tuple(_row(run, node, hop, expected) for hop, expected in run.plan.recover.hops.expected())
    taken = [row for row in rows if row.took_s is not None]
    end = chain_end(run.history, node)
    replaced = [event for _, event in run.history.about(NodeReplaced, node)]
    return RepairStory(
        node=node,
        successor=replaced[-1].successor if replaced else "",
        pool=", ".join(f"{key}={value}" for key, value in replaced[-1].pool.items()) if replaced else "",
        rows=rows,
        total_s=taken[-1].offset_s if taken else None,
        slowest=max(taken, key=lambda row: row.took_s or 0.0).hop if taken else None,
        stopped_at=(end[1].stopped_at or "") if end else "",
        why=end[1].why if end else "",
        left=end[1].left if end else (),
        in_service=bool(end and end[1].in_service),
    )


def _row(run: RunFolder, node: str | None, hop: RepairHop, expected: ExpectedHop) -> RepairRow:
    assert run.plan is not None
    check = f"repair-{hop.value.replace(' ', '-')}"
    verdict = next((one for one in run.verdicts if (one.check, one.node) == (check, node)), None)
    found = hops_seen(run.history, node).get(hop)
    seen = found[1] if found else None
    return RepairRow(
        hop=hop,
        by=seen.by if seen else "",
        kind=(seen.repair or "") if seen else "",
        at=seen.at if seen else None,
        offset_s=run.offset_s(seen.at) if seen else None,
        took_s=seen.took_s if seen else None,
        since=seen.since if seen else "",
        bound=verdict.bound if verdict else at_most(expected.within),
        status=verdict.status if verdict else None,
        source=seen.source if seen else "",
    )
