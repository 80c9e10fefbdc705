"""Choose the targets once, before anything changes, by a stated and seeded rule."""

from __future__ import annotations

from dataclasses import dataclass

from gameday.cluster.kubernetes import CANDIDATE_PAGE, KubernetesError, snapshot
from gameday.history.events import NodeSnapshot, Target, TargetsChosen
from gameday.run.context import Run
from gameday.run.stop import RefusedError

# What a healthy GPU node may carry: the operator's own taint that keeps other work off it.
_ORDINARY_TAINTS = frozenset({"nvidia.com/gpu"})
_RULE = "seeded order among the first {page} nodes by name labelled {labels}; the first {count} that are fit"
_RULE_NAMED = "the nodes the plan names, in its order, labelled {labels}"


@dataclass(frozen=True)
class Chosen:
    targets: tuple[Target, ...]
    snapshots: tuple[NodeSnapshot, ...]


def opt_in(run: Run) -> dict[str, str]:
    key, _, value = run.profile.opt_in_label.partition("=")
    return {key: value, **run.plan.targets.selector}


def choose_targets(run: Run) -> Chosen:
    """Nodes that opted in, are Ready, schedulable and free of unexpected taints; GPUs by the same seed.

    Raises RefusedError, naming what each looked-at node lacked, when there are too few.
    """
    wanted, labels = run.plan.targets, opt_in(run)
    readable = ",".join(f"{key}={value}" for key, value in labels.items())
    if wanted.names:
        names, candidates = list(wanted.names), len(wanted.names)
        rule = _RULE_NAMED.format(labels=readable)
    else:
        names = [candidate.name for candidate in run.kubernetes.candidates(labels)]
        candidates = len(names)
        run.random.shuffle(names)
        rule = _RULE.format(page=CANDIDATE_PAGE, labels=readable, count=wanted.nodes)
    if not names:
        raise RefusedError(
            f"no node carries {readable}",
            f"kubectl label node <node> {run.profile.opt_in_label} lets game-days touch it",
        )
    fit: list[NodeSnapshot] = []
    unfit: list[str] = []
    for name in names:
        if len(fit) == wanted.nodes or len(unfit) > _LOOKED_AT:
            break
        seen = _look_at(run, name)
        why = _unfit(run, seen, labels) if seen else f"no node of this name in {run.kubernetes.server}"
        if why or seen is None:
            unfit.append(f"{name}: {why}")
        else:
            fit.append(seen)
    if len(fit) < wanted.nodes:
        raise RefusedError(
            f"{len(fit)} of {wanted.nodes} targets found; " + "; ".join(unfit[:_LOOKED_AT]),
            "mend the nodes, or change targets in the plan",
        )
    targets = tuple(Target(node=seen.node, gpu=_gpu(run, seen)) for seen in fit)
    run.note(TargetsChosen(targets=targets, candidates=candidates, rule=rule, seed=wanted.seed))
    return Chosen(targets, tuple(fit))


# A GET per unfit node: after this many the cluster, not the choice, is the problem.
_LOOKED_AT = 5


def _look_at(run: Run, name: str) -> NodeSnapshot | None:
    try:
        return snapshot(run.kubernetes.node(name))
    except KubernetesError as error:
        if error.status == 404:
            return None
        raise


def _unfit(run: Run, seen: NodeSnapshot, labels: dict[str, str]) -> str:
    """What keeps this node from being a target; empty when nothing does."""
    missing = [f"{key}={value}" for key, value in labels.items() if seen.labels.get(key) != value]
    taken = [str(taint) for taint in seen.taints if taint.key in run.quarantine_keys]
    odd = [str(taint) for taint in seen.taints if taint.key not in _ORDINARY_TAINTS]
    if missing:
        return f"lacks label {', '.join(missing)}"
    if seen.conditions.get("Ready") != "True":
        return f"Ready is {seen.conditions.get('Ready', 'not reported')}"
    if seen.unschedulable:
        return "is cordoned"
    if taken:
        return f"already carries {', '.join(taken)}, which is the detector's to set"
    return f"carries {', '.join(odd)}" if odd else ""


def _gpu(run: Run, seen: NodeSnapshot) -> int:
    asked: int | None = getattr(run.plan.fault, "gpu", None)
    if asked is not None:
        return asked
    return run.random.randrange(seen.allocatable_gpus) if seen.allocatable_gpus else 0
