"""The choice of a season's plans, and why the others are left out: dangerous and not named, or too long."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from gameday.detectors.resolve import load_complete_plan
from gameday.documents.fields import format_duration
from gameday.faults.registry import fault_for
from gameday.plan.catalogue import find_plan, shipped_plans
from gameday.plan.load import LoadedPlan
from gameday.plan.models import Plan
from gameday.season.record import LeftOut


@dataclass(frozen=True)
class ChosenPlan:
    """`name` is what the plan was asked for by: a shipped plan's name, or a path."""

    name: str
    loaded: LoadedPlan

    @property
    def plan(self) -> Plan:
        return self.loaded.plan


def choose_plans(
    names: Sequence[str],
    *,
    within: timedelta | None,
    at_once: int,
    folders: Sequence[Path] = (),
) -> tuple[list[ChosenPlan], list[LeftOut]]:
    """The plans to run, those that take longest first; all shipped ones where none are named.

    A dangerous fault is left out unless its plan was named, one whose own bounds let it last longer than `within`
    or that aims at more than `at_once` nodes in any case. `folders` hold the team's own detector profiles. Raises
    DocumentError for a plan that cannot be read.
    """
    chosen: list[ChosenPlan] = []
    left_out: list[LeftOut] = []
    for name in dict.fromkeys(names or shipped_plans()):
        one = ChosenPlan(name, load_complete_plan(find_plan(name), folders))
        why = _unfit(one.plan, named=bool(names), within=within, at_once=at_once)
        if why:
            left_out.append(LeftOut(plan=one.plan.name, title=one.plan.title, why=why))
        else:
            chosen.append(one)
    return sorted(chosen, key=lambda one: (-longest_wait(one.plan).total_seconds(), one.plan.name)), left_out


def longest_wait(plan: Plan) -> timedelta:
    """Return the longest wait for what the plan expects: its baseline, then the latest of its bounds."""
    return plan.baseline.window + plan.longest_bound


def _unfit(plan: Plan, *, named: bool, within: timedelta | None, at_once: int) -> str:
    """Return why the season leaves this plan out; empty where it does not."""
    if (dangers := plan.dangers()) and not named:
        what = "; ".join(f"{fault} is dangerous: {why}" for fault, why in dangers.items())
        return f"{what}. It runs where its plan is named"
    if plan.targets.nodes > at_once:
        return f"it aims at {plan.targets.nodes} nodes, and at most {at_once} may be broken at once"
    if within is not None and longest_wait(plan) > within:
        return (
            f"it may wait {format_duration(longest_wait(plan))} for its signals, longer than {format_duration(within)}"
        )
    return ""


def plans_that_run_alone(chosen: Sequence[ChosenPlan]) -> frozenset[str]:
    """Return the names of plans whose fault other nodes feel too: no other run may go on beside them."""
    return frozenset(
        one.plan.name
        for one in chosen
        if any(claim.cluster_wide for claim in fault_for(one.plan.fault).claims(one.plan.fault))
    )
