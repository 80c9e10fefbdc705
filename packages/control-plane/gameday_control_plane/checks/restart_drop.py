"""Judge how much memory a restart of each API server frees once the load is gone.

Before and after the restart the servers hold the same objects and serve the same small requests of an idle cluster. So
the difference is what the process had kept of the load. Under load, that could not be told apart from what the
restarted server has not been asked for yet.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta

import pandas as pd

from gameday.checks.facts import first_fault, stop_reason, target_nodes
from gameday.checks.verdict import Status, Verdict, containment_verdict
from gameday.history.events import ApiServersRestarted
from gameday.history.frames import Frames
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday_control_plane.checks.containment import MEMORY
from gameday_control_plane.expect.control_plane import ControlPlane, ExpectedRestartDrop

ORDER = 62


@dataclass(frozen=True)
class RestartDrop:
    """An API server's memory of some kind before and after its restart, in bytes."""

    before: float
    after: float

    @property
    def share(self) -> float:
        """The share of its memory that the restart freed; negative if the server took more afterwards."""
        return 1 - self.after / self.before


def check(plan: Plan, history: History, frames: Frames) -> list[Verdict]:
    containment = ControlPlane.of(plan.expect).containment
    expected = containment and containment.restart_frees
    return [_verdict(expected, plan, history, frames, target_nodes(history)[0])] if expected else []


def restart_drops(plan: Plan, history: History, frames: Frames, metric: str = MEMORY) -> dict[str, RestartDrop]:
    """Return by server what the run's own restart freed, by the medians of the second half of `settle` on both sides.

    Args:
        plan: The plan.
        history: The run's history. The result is empty if nothing was restarted.
        frames: The frames. A server without samples on both sides is left out.
        metric: A gauge of bytes by server.
    """
    asked, done = plan.recover.restart_api_servers, history.last(ApiServersRestarted)
    if asked is None or done is None:
        return {}
    half, rows = asked.settle / 2, frames.api_server[frames.api_server.metric == metric]
    before = _medians(rows, done.asked_at - half, half)
    after = _medians(rows, done.ready_at + half, half)
    return {server: RestartDrop(before[server], after[server]) for server in sorted(before.keys() & after.keys())}


def _medians(rows: pd.DataFrame, begin: datetime, length: timedelta) -> dict[str, float]:
    inside = rows[(rows.time >= pd.Timestamp(begin)) & (rows.time <= pd.Timestamp(begin + length))]
    return {str(server): float(value) for server, value in inside.groupby("server").value.median().items()}


def _verdict(expected: ExpectedRestartDrop, plan: Plan, history: History, frames: Frames, node: str | None) -> Verdict:
    drops = restart_drops(plan, history, frames)
    status, why = _judge(expected, drops, frames)
    if history.last(ApiServersRestarted) is None:
        reached = first_fault(history, node) is not None
        why = "the API servers were not restarted" if reached else f"not reached: {stop_reason(history)}"
    least = "" if expected.at_least is None else f"{expected.at_least:.0%} ≤ "
    most = "" if expected.at_most is None else f" ≤ {expected.at_most:.0%}"
    return containment_verdict(
        "containment-restart-frees",
        "A restart with the load gone frees as much of each API server's memory",
        f"{least}freed{most}",
        ", ".join(f"{server}: {drop.share:.0%} of {drop.before / 2**20:,.0f} MiB" for server, drop in drops.items()),
        status,
        why,
        node,
    )


def _judge(expected: ExpectedRestartDrop, drops: dict[str, RestartDrop], frames: Frames) -> tuple[Status, str]:
    missing = sorted(set(frames.api_server.server) - drops.keys())
    if not drops or missing:
        of = f" of {', '.join(missing)}" if missing else ""
        return Status.UNKNOWN, f"not measured: samples of {MEMORY}{of} before and after the restart"
    least, most = expected.at_least or -math.inf, expected.at_most or math.inf
    held = all(least <= drop.share <= most for drop in drops.values())
    return Status.HELD if held else Status.BROKEN, ""
