"""The draw of a random season before it is played, from a cluster that is only read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta

from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.profile import ClusterProfile
from gameday.ledger.ledger import stored_ledgers
from gameday.run.abort import Abort
from gameday.runs.draw import DRAWN_FROM, draw, plans_to_draw, refuse_settings, usual_duration
from gameday.runs.plans import played_here
from gameday.runs.play import OpenSeason, fit_nodes
from gameday.runs.season_record import Assignment, DrawnNotPlaced, LeftOut, RandomSettings


@dataclass(frozen=True)
class SeasonPreview:
    """The draw of a random season."""

    runs: Sequence[Assignment]
    not_placed: Sequence[DrawnNotPlaced]
    """Game-days that were drawn, and for which it has no time or no nodes."""
    left_out: Sequence[LeftOut]
    """Plans that it never draws."""


def preview_random_season(
    cluster: ClusterProfile,
    plans: Sequence[str],
    asked: RandomSettings,
    seed: int,
    at_once: int,
    before: Mapping[str, timedelta],
) -> SeasonPreview:
    """Return what the season would play, as the cluster is now.

    Args:
        cluster: The cluster.
        plans: Shipped plans' names or paths; none: every shipped plan.
        asked: Budget and mean gap.
        seed: The season's seed.
        at_once: Nodes that may be broken at the same time.
        before: What game-days have taken here, by the plan's name.

    Raises:
        DocumentError: A plan cannot be read.
        RefusedError: Nothing can be drawn.
        AdapterError: The cluster does not answer.
    """
    refuse_settings(asked)
    chosen, left_out = plans_to_draw(plans, cluster=cluster, at_once=at_once, budget=asked.budget, before=before)
    chosen, without_lab = played_here(chosen, cluster.lab_control)
    id = "season-preview"
    with closing(Kubernetes(cluster)) as kubernetes:
        season = OpenSeason(id, kubernetes, Abort(), stored_ledgers(kubernetes).dirty_nodes)
        nodes = fit_nodes(season, chosen, seed, DRAWN_FROM)
    takes = {one.plan.name: usual_duration(one, cluster, before) for one in chosen}
    runs, not_placed = draw(id, chosen, nodes, asked, seed, takes)
    return SeasonPreview(runs, not_placed, (*left_out, *without_lab))
