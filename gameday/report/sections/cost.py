"""The cost of the run to the cluster's servers: our own requests and bytes."""

from __future__ import annotations

from pydantic import BaseModel, Field

from gameday.history.events import ApiCost, IntentRecorded, OwnCost
from gameday.report.run_folder import RunFolder

ORDER = 110
TITLE = "Probe effect: our own cost"
GROUP = "The run and its files"


class Costs(BaseModel):
    """The newest (cumulative) count per server; a server without a count is absent, not 0."""

    servers: tuple[ApiCost, ...]
    queries: int | None = Field(description="queries to Prometheus; None if nobody counted")
    watches: int | None = Field(description="watches opened at the API server, re-opened ones included")
    made: tuple[str, ...] = Field(description="pods and jobs the run made")
    own: OwnCost | None
    seconds: float | None = Field(description="from the run's first record to its last")


def build(run: RunFolder) -> Costs:
    newest = {cost.server: cost for cost in run.history.of(ApiCost)}
    objects = [intent.object for intent in run.history.of(IntentRecorded)]
    records = run.history.records
    return Costs(
        servers=tuple(newest.values()),
        queries=_calls(newest.get("prometheus"), "query"),
        watches=_calls(newest.get("kubernetes"), "WATCH"),
        made=tuple(name for name in objects if name.lower().startswith(("pod/", "job/"))),
        own=run.history.last(OwnCost),
        seconds=(records[-1].at - records[0].at).total_seconds() if records else None,
    )


def _calls(cost: ApiCost | None, word: str) -> int | None:
    return sum(count for call, count in cost.by_call.items() if word in call) if cost else None
