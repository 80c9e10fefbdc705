"""Step 5, hands off: wait while the cluster itself drains, repairs, validates and returns the targets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from gameday.observe.cluster_repair import ClusterRepair
from gameday.observe.injected_fault import InjectedFault
from gameday.run.repair import Repair
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.run.targets import ChosenTarget, opt_in_labels


def await_cluster_repairs(run: Run, result: StepResult, faults: Sequence[InjectedFault]) -> tuple[Repair, ...]:
    """Wait until every target's repair chain has ended, and report where the cluster stopped.

    Args:
        run: The run.
        result: Receives the findings.
        faults: The faults, each with the watch of its target's repair.

    Returns:
        Each target's repair, with the node that is in its place now. QA is left out if the cluster did not finish, or
        if the plan wants the node to stay out of service.
    """
    return tuple(_await(run, result, fault.cluster_repair) for fault in faults if fault.cluster_repair)


def is_back(run: Run, fault: InjectedFault) -> bool:
    """Return True if the cluster took every hop and gave the node back, so that alerts and signals must end."""
    ended = fault.cluster_repair.watch.ended if fault.cluster_repair else None
    return run.plan.recover.gives_node_back and ended is not None and ended.stopped_at is None


def _await(run: Run, result: StepResult, repair: ClusterRepair) -> Repair:
    watch, node = repair.watch, repair.target.node
    run.wait(f"the cluster to repair {node}: {watch.waits_for or 'done'}", watch.longest, lambda: watch.ended)
    repair.look()
    watch.end("the game-day waits no longer")
    ended, now = watch.ended, _in_its_place(repair)
    if ended is None or ended.stopped_at:
        hop, why = (ended.stopped_at, ended.why) if ended else ("quarantined", "nothing was awaited")
        result.mark_broken(f"the cluster's repair of {node} stopped at the hop '{hop}': {why}")
        return Repair(now, f"the cluster's repair stopped at the hop '{hop}'", cluster_repairs=True)
    if not ended.in_service:
        return Repair(now, "the plan wants the node to stay out of service", cluster_repairs=True)
    return Repair(now, _why_not_ours(run, now), cluster_repairs=True)


def _in_its_place(repair: ClusterRepair) -> ChosenTarget:
    """Return the target, or the node that replaced it, with the target's state before the fault."""
    target, name = repair.target, repair.watch.name
    if name == target.node:
        return target
    before = target.before.model_copy(update={"node": name})
    return replace(target, target=target.target.model_copy(update={"node": name}), before=before)


def _why_not_ours(run: Run, target: ChosenTarget) -> str:
    """Return why our QA must not be sent to a node; empty if it may."""
    now, wanted = run.nodes.now(target.node), opt_in_labels(run)
    missing = [f"{key}={value}" for key, value in wanted.items() if not now or now.labels.get(key) != value]
    return f"{target.node} does not carry {', '.join(missing)}" if missing else ""
