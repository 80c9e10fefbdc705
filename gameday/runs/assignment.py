"""The assignment of nodes to runs, made before anything changes and by the season's seed alone."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gameday.plan.models import Plan
from gameday.run.targets import judges_running_pods, why_never_fit
from gameday.runs.plans import ChosenPlan
from gameday.runs.season_record import ArmRun, Assignment, LeftOut
from gameday.values.nodes import NodeRole


@dataclass(frozen=True)
class FitNode:
    """A node that a game-day may use in its role. `busy`: work holds some of its GPUs."""

    name: str
    labels: dict[str, str]
    busy: bool
    role: NodeRole = NodeRole.GPU


def seeded_order(names: Sequence[str], seed: int) -> list[str]:
    """Return the names in an order that depends only on them and the seed."""
    ordered = sorted(names)
    random.Random(seed).shuffle(ordered)  # noqa: S311 - a stated, repeatable choice
    return ordered


def assign(
    season: str, chosen: Sequence[ChosenPlan], nodes: Sequence[FitNode]
) -> tuple[list[Assignment], list[LeftOut]]:
    """Give each plan its nodes: of those that it may use, the ones with the fewest runs so far, in the nodes' order.

    So every plan has nodes of its own if there are enough; else plans share nodes and take turns. A plan that judges
    running pods prefers nodes that have some, because the others would prove nothing.
    """
    minutes = dict.fromkeys((node.name for node in nodes), 0.0)
    order = {node.name: number for number, node in enumerate(nodes)}
    places: list[Assignment] = []
    left_out: list[LeftOut] = []
    for one in chosen:
        plan = one.plan
        usable = sorted(usable_by(one, nodes), key=lambda node: (idle(one, node), minutes[node.name], order[node.name]))
        mine = tuple(node.name for node in usable[: plan.targets.nodes])
        if why := too_few(one, len(usable)):
            left_out.append(LeftOut(plan=plan.name, title=plan.title, why=why))
            continue
        for name in mine:
            minutes[name] += one.longest_wait.total_seconds() / 60
        for arm in _arm_runs(season, plan):
            run_id = f"{season}-{len(places) + 1:02d}"
            places.append(Assignment(run_id=run_id, plan=plan.name, asked_as=one.name, targets=mine, arm=arm))
    return places, left_out


def order_of_plays(chosen: Sequence[ChosenPlan], plays: int, seed: int, done: Mapping[str, int]) -> list[ChosenPlan]:
    """Return each plan as often as it is still to be played.

    Args:
        chosen: The plans.
        plays: The number of times for each; a plan with arms has repetitions of its own, and is played once.
        seed: With several plays, the seed of their order, so that no detector meets a fault always after the same one.
        done: How often earlier seasons played each plan.
    """
    order = [one for one in chosen for _ in range(1 if one.plan.arms else plays)]
    if plays > 1:
        order.sort(key=lambda one: one.plan.name)
        random.Random(seed).shuffle(order)  # noqa: S311 - a stated, repeatable choice
    before = Counter(done)
    left: list[ChosenPlan] = []
    for one in order:
        if before[one.plan.name] > 0:
            before[one.plan.name] -= 1
        else:
            left.append(one)
    return left


def comparison_of(season: str, plan: Plan) -> str:
    """Return the id of the comparison of this plan's arms, which is also the name of its folder."""
    return f"{season}-{plan.name}"


def _arm_runs(season: str, plan: Plan) -> list[ArmRun | None]:
    """Return the plan's runs in the order in which they are played: one, or one for each arm and repetition."""
    if plan.arms is None:
        return [None]
    return [
        ArmRun(comparison=comparison_of(season, plan), arm=arm.name, repetition=repetition)
        for repetition, arm in plan.arms.order()
    ]


def usable_by(one: ChosenPlan, nodes: Sequence[FitNode]) -> list[FitNode]:
    """Return the nodes that the plan may use."""
    wanted = one.plan.targets
    return [
        node
        for node in nodes
        if node.role is one.plan.fault.runs_on
        and (not wanted.names or node.name in wanted.names)
        and wanted.selector.items() <= node.labels.items()
        and not any(why_never_fit(played, node.labels) for played in one.played)
    ]


def too_few(one: ChosenPlan, usable: int) -> str:
    """Return why the plan cannot be played on so many nodes; empty if it can."""
    needed = one.plan.targets.nodes
    return f"it needs {needed} nodes, and {usable} that it may use are fit" if usable < needed else ""


def idle(one: ChosenPlan, node: FitNode) -> bool:
    """Return True if the plan judges running pods and the node has none, so that a question would stay open."""
    return not node.busy and any(map(judges_running_pods, one.played))


class RunQueue:
    """A queue of runs; a run may begin if its nodes are free and not too many nodes are broken together."""

    def __init__(self, places: Sequence[Assignment], at_once: int, alone: frozenset[str] = frozenset()) -> None:
        """`alone` names the plans with a fault that reaches beyond its node: nothing runs beside them."""
        self._waiting = sorted(places, key=lambda run: run.drawn is None and run.plan in alone)
        self._running: dict[str, Assignment] = {}
        self._at_once = at_once
        self._alone = alone
        self.late: list[str] = []
        """Runs that will not begin, because their turn came after the latest time that was drawn for them."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    @property
    def waits_for_a_time(self) -> bool:
        """True if a run waits for the time that was drawn for it."""
        return any(one.drawn for one in self._waiting)

    def startable(self, elapsed_s: float = 0.0) -> list[Assignment]:
        """Return the next runs to begin, which count as running from now on.

        Args:
            elapsed_s: Seconds since the season began to play, for comparison with drawn times.
        """
        begun: list[Assignment] = []
        for one in list(self._waiting):
            if one.drawn and elapsed_s < one.drawn.at_s:
                continue
            if one.drawn and elapsed_s > one.drawn.latest_s:
                self._waiting.remove(one)
                self.late.append(one.run_id)
            elif self._may_begin(one):
                self._waiting.remove(one)
                self._running[one.run_id] = one
                begun.append(one)
            elif one.drawn and one.plan in self._alone:
                break  # later ones would keep it waiting forever
        return begun

    def ended(self, run_id: str) -> None:
        del self._running[run_id]

    def take_out(self, nodes: Collection[str]) -> None:
        """Begin no further run on these nodes."""
        self._waiting = [one for one in self._waiting if not set(nodes) & set(one.targets)]

    def _may_begin(self, one: Assignment) -> bool:
        broken = {node for running in self._running.values() for node in running.targets}
        if self._running and (one.plan in self._alone or any(r.plan in self._alone for r in self._running.values())):
            return False
        return not broken & set(one.targets) and len(broken) + len(one.targets) <= self._at_once
