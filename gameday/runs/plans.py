"""The choice of a season's plans, and why the others are left out: dangerous and not named, or too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from gameday.cluster.profile import ClusterProfile
from gameday.detectors.load import load_detector
from gameday.detectors.played_by import played_by, why_not_played_by_guest
from gameday.detectors.resolve import load_complete_plan
from gameday.documents.fields import format_duration
from gameday.errors import DocumentError, DocumentProblem
from gameday.faults.optional import claims_of
from gameday.plan.arms import Arms
from gameday.plan.catalogue import find_plan, shipped_plans
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.runs.arm_checks import refuse_unknown_checks
from gameday.runs.season_record import LeftOut
from gameday.values.nodes import NodeRole

_OUR_DETECTOR = "gameday"
_NEEDS_A_LAB = "it restarts or stops programs of the control plane, and only a lab lets itself be asked for that"


@dataclass(frozen=True)
class ChosenPlan:
    """A plan of the season. `name`: the shipped plan's name or the path by which it was asked for."""

    name: str
    loaded: LoadedPlan

    @property
    def plan(self) -> Plan:
        return self.loaded.plan

    @property
    def played(self) -> tuple[Plan, ...]:
        """The plans that its game-days play: each arm's, or its own if it has no arms."""
        return tuple(one.plan for one in self.loaded.played)

    @property
    def arms(self) -> Arms:
        """The plan's arms; the plan must have some."""
        assert self.plan.arms is not None
        return self.plan.arms

    @property
    def changes_the_lab(self) -> bool:
        """True if its arms have different settings of the control plane, or its fault stops parts of that."""
        arms = self.plan.arms.compare if self.plan.arms else ()
        return any(arm.rehearsal for arm in arms) or any(plan.fault.needs_lab for plan in self.played)

    @property
    def begins_fresh(self) -> bool:
        """True if each game-day of its arms needs API servers that have just started.

        A server keeps memory that an earlier load took, so what a later arm adds would seem too little.
        """
        return bool(self.plan.arms) and (self.changes_the_lab or self.plan.fault.runs_on is NodeRole.API_CLIENT)

    def rehearsal_of(self, arm: str) -> dict[str, Any]:
        """Return the keys of `rehearsal` that one of its arms changes."""
        return next(one.rehearsal for one in self.arms.compare if one.name == arm)

    @property
    def longest_wait(self) -> timedelta:
        """The longest wait of all its game-days together, which come one after the other."""
        repetitions = self.plan.arms.repetitions if self.plan.arms else 1
        return repetitions * sum(map(longest_wait, self.played), timedelta())


def choose_plans(
    names: Sequence[str],
    *,
    within: timedelta | None,
    at_once: int,
    folders: Sequence[Path] = (),
    cluster: ClusterProfile | None = None,
    rehearsed: bool = False,
) -> tuple[list[ChosenPlan], list[LeftOut]]:
    """Return the plans to run, those that take longest first; all shipped ones if none are named.

    A plan with a dangerous fault, a repair by the cluster, or arms is left out unless it was named; in a `rehearsed`
    season a dangerous fault is no reason, because it harms nobody there. A plan that may last longer than `within` by
    its own bounds, or that aims at more than `at_once` nodes, is left out in any case; what a guest's profile adds to
    its bounds does not count. `folders` hold the team's own detector profiles. Raises DocumentError for a plan that
    cannot be read.
    """
    chosen: list[ChosenPlan] = []
    left_out: list[LeftOut] = []
    dangerous = rehearsed or bool(names)
    for name in dict.fromkeys(names or shipped_plans()):
        one, written, why = read_plan(name, folders, cluster)
        why = why or why_left_out(one, written, named=bool(names), dangerous=dangerous, within=within, at_once=at_once)
        if why:
            left_out.append(LeftOut(plan=one.plan.name, title=one.plan.title, why=why))
        else:
            chosen.append(one)
    return sorted(chosen, key=lambda one: (-one.longest_wait.total_seconds(), one.plan.name)), left_out


def read_plan(name: str, folders: Sequence[Path], cluster: ClusterProfile | None) -> tuple[ChosenPlan, timedelta, str]:
    """Return a plan as the cluster plays it, its wait by its file, and why a rehearsal with a guest cannot play it."""
    guest = cluster.guest if cluster else None
    watching = cluster.detector if cluster and not guest else None
    one = ChosenPlan(name, load_complete_plan(find_plan(name), folders, watching))
    refuse_unknown_checks(one.loaded)
    written = one.longest_wait
    why = why_not_played_by_guest(one.plan) if guest else ""
    if cluster and guest and not why:
        one = ChosenPlan(name, _played_by_guest(one.loaded, cluster))
    return one, written, why


def plan_with_arms(name: str, loaded: LoadedPlan, cluster: ClusterProfile) -> ChosenPlan:
    """Return a plan that has arms, as the cluster plays them.

    Args:
        name: The name or path that the plan was asked for by.
        loaded: The plan.
        cluster: The cluster.

    Raises:
        DocumentError: The plan has no arms, or they name unknown checks.
    """
    if not loaded.arms:
        what, fix = "this plan has no arms to compare", f"`gameday run {name}` plays it as one game-day"
        raise DocumentError([DocumentProblem(str(loaded.file), None, None, "arms", None, what, fix)])
    refuse_unknown_checks(loaded)
    if cluster.guest:
        loaded = replace(loaded, arms=tuple(_played_by_guest(arm, cluster) for arm in loaded.arms))
    return ChosenPlan(name, loaded)


def played_here(chosen: Sequence[ChosenPlan], lab: Path | None) -> tuple[list[ChosenPlan], list[LeftOut]]:
    """Return the plans that this cluster can play, and the others with the reason.

    Args:
        chosen: The plans.
        lab: The control socket of the lab; None for any other cluster, which must not have its control plane restarted.
    """
    left_out = [
        LeftOut(plan=one.plan.name, title=one.plan.title, why=f"{_NEEDS_A_LAB}: `gameday rehearse {one.name}`")
        for one in chosen
        if one.changes_the_lab and lab is None
    ]
    names = {one.plan for one in left_out}
    return [one for one in chosen if one.plan.name not in names], left_out


def _played_by_guest(loaded: LoadedPlan, cluster: ClusterProfile) -> LoadedPlan:
    """Return a plan as it is played beside a guest: by the guest's detector profile, if it has one.

    Raises DocumentError if that profile cannot be read.
    """
    assert cluster.guest is not None
    if cluster.detector == _OUR_DETECTOR:  # the cluster profile names no other: the guest has no profile
        return played_by(loaded, cluster.guest.name, None)
    return played_by(loaded, cluster.detector, load_detector(cluster.detector, cluster.detector_profiles))


def longest_wait(plan: Plan) -> timedelta:
    """Return the longest wait for what the plan expects: its baseline, then the latest of its bounds."""
    return plan.baseline.window + plan.longest_bound


def _why_to_be_named(one: ChosenPlan, *, named: bool, dangerous: bool) -> str:
    dangers = {fault: why for played in one.played for fault, why in played.dangers().items()}
    if dangers and not dangerous:
        return "; ".join(f"{fault} is dangerous: {why}" for fault, why in dangers.items())
    if one.plan.recover.is_hands_off and not named:
        return "the cluster repairs the node, which not every cluster does"
    if one.plan.arms and not named:
        return "it compares arms, which takes a game-day each"
    return ""


def why_left_out(
    one: ChosenPlan,
    written: timedelta,
    *,
    named: bool,
    dangerous: bool,
    within: timedelta | None,
    at_once: int,
) -> str:
    """Return why the season leaves this plan out; empty if it does not.

    `written` is the wait by the plan's file, which counts even if a guest's profile makes it longer. `dangerous`: if
    true, dangerous plans may be played, too.
    """
    plan, wait = one.plan, min(one.longest_wait, written)
    if why := _why_to_be_named(one, named=named, dangerous=dangerous):
        return f"{why}. It runs where its plan is named"
    if plan.targets.domain:
        return (
            f"it breaks a whole {plan.targets.domain.label}, of which a season knows nothing: `gameday run {one.name}`"
        )
    if plan.targets.nodes > at_once:
        return f"it aims at {plan.targets.nodes} nodes, and at most {at_once} may be broken at once"
    if within is not None and wait > within:
        return f"it may wait {format_duration(wait)} for its signals, longer than {format_duration(within)}"
    return ""


def plans_that_run_alone(chosen: Sequence[ChosenPlan]) -> frozenset[str]:
    """Return the names of plans that other nodes feel, by their fault or their arms: no run is played beside them."""
    return frozenset(
        one.plan.name
        for one in chosen
        for plan in one.played
        if one.changes_the_lab or any(claim.cluster_wide for claim in claims_of(plan.fault))
    )
