"""What watching and breaking cost the cluster's servers: our own requests and bytes."""

from __future__ import annotations

from pydantic import BaseModel

from gameday.history.events import ApiCost
from gameday.report.run import Run

ORDER = 110
TITLE = "Our own API cost"


class Costs(BaseModel):
    """The newest (cumulated) count per server; a server nobody counted is absent, not 0."""

    servers: tuple[ApiCost, ...]


def build(run: Run) -> Costs:
    newest = {cost.server: cost for cost in run.history.of(ApiCost)}
    return Costs(servers=tuple(newest.values()))
