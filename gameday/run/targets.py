"""Choose the targets once, before anything changes, by a stated and seeded rule."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from gameday.cluster.kubernetes import CANDIDATE_PAGE
from gameday.cluster.nodes import GPU_COUNT_LABEL
from gameday.errors import RefusedError
from gameday.history.events import TargetsChosen
from gameday.history.journal import History
from gameday.plan.models import Plan
from gameday.run.domain import DomainChoice, choose_domain
from gameday.run.run import ReadOnlyRun
from gameday.values.nodes import NodeRole, NodeSnapshot, Target

# The text after "Target chosen: NODE GPU 5, " in the timeline.
_RULE = "from {first}{count} opted-in node{s} (seed {seed})"
_RULE_FREE = ", preferring nodes with a free GPU"
_RULE_BUSY = " and running GPU pods"
_RULE_SEASON = "by season {season} (seed {seed})"
_RULE_DOMAIN = "from the GPU nodes of {domain} (seed {seed}), {share:g} % of them"
_RULE_NAMED = "named by the plan"
# The user of a node's GPUs by the GPU operator's label (container, vm-passthrough, vm-vgpu); containers without it.
_WORK_LABEL, _CONTAINERS = "nvidia.com/gpu.workload.config", "container"
# GPU feature discovery's label, and its mark in the product's name if MIG's strategy is `single`.
_PRODUCT_LABEL, _MIG_PRODUCT = "nvidia.com/gpu.product", "-MIG-"
# Looking at a node costs a watch. After this many unfit nodes the cluster is the problem, not the choice.
_MOST_UNFIT = 5


@dataclass(frozen=True)
class ChosenTarget:
    """A node that the run breaks, and its GPU."""

    index: int
    """The target's position among the run's targets, from 0; part of its pods' names."""
    target: Target
    before: NodeSnapshot
    """The node as it was when it was chosen."""

    @property
    def node(self) -> str:
        return self.target.node

    @property
    def gpu(self) -> int | None:
        return self.target.gpu


Targets = tuple[ChosenTarget, ...]


def chosen_targets(history: History) -> tuple[Target, ...]:
    """Return the targets that a run has chosen; empty before it has."""
    chosen = history.last(TargetsChosen)
    return chosen.targets if chosen else ()


def opt_in_labels(run: ReadOnlyRun) -> dict[str, str]:
    """Return the labels that a node must carry to be a target."""
    key, _, value = required_label(run).partition("=")
    return {key: value, **run.plan.targets.selector}


def required_label(run: ReadOnlyRun) -> str:
    """Return the label, as key=value, by which a node's owner allows what this plan does there."""
    return run.profile.required_label(run.plan.fault.runs_on)


def pool_labels(run: ReadOnlyRun) -> dict[str, str]:
    """Return the labels of the nodes on which a resubmitted GPU job may run: the targets' pool."""
    return run.profile.guardrails.pool_selector or opt_in_labels(run)


def chosen_seed(run: ReadOnlyRun) -> int:
    """Return the seed that chooses nodes and GPUs: the season's, or the plan's outside a season."""
    return run.member.seed if run.member else run.plan.targets.seed


def choose_targets(run: ReadOnlyRun, excluded_nodes: Mapping[str, str]) -> Targets:
    """Choose among the nodes that opted in and are Ready, schedulable and free of unexpected taints.

    The seed also chooses the GPUs. Nodes on which every expectation can be proved come first.

    Args:
        run: The run, for its plan, profile and cluster.
        excluded_nodes: The nodes that cannot be targets, each with the reason.

    Raises:
        RefusedError: There are too few; the message says what each examined node lacks.
        AdapterError: The cluster does not answer.
    """
    labels = opt_in_labels(run)
    readable = ",".join(f"{key}={value}" for key, value in labels.items())
    seed = chosen_seed(run)
    generator = random.Random(seed)  # noqa: S311 - a stated, repeatable choice
    wanted = run.plan.targets
    domain = choose_domain(run, wanted.domain, labels, generator) if wanted.domain else None
    names, rule = _candidates(run, labels, generator, domain)
    count = domain.count if domain else wanted.nodes
    if not names:
        raise RefusedError(
            f"no node carries {readable}",
            f"kubectl label node <node> {required_label(run)} lets game-days touch it",
        )
    fit, unfit = _fit_among(run, names, labels, excluded_nodes, count)
    if len(fit) < count:
        raise RefusedError(
            f"{len(fit)} of {count} targets found; " + "; ".join(unfit[:_MOST_UNFIT]),
            "mend the nodes, or change targets in the plan",
        )
    targets = tuple(
        ChosenTarget(index, Target(node=seen.node, gpu=_gpu(run, seen, generator)), seen)
        for index, seen in enumerate(fit)
    )
    run.note(
        TargetsChosen(
            targets=tuple(chosen.target for chosen in targets),
            candidates=len(names),
            rule=rule,
            seed=seed,
            domain=domain.struck if domain else None,
            virtual=tuple(chosen.node for chosen in targets if chosen.before.virtual),
        )
    )
    return targets


def _candidates(
    run: ReadOnlyRun, labels: dict[str, str], generator: random.Random, domain: DomainChoice | None
) -> tuple[Sequence[str], str]:
    """Return the nodes to look at, in order, and the rule that explains the choice."""
    wanted, seed = run.plan.targets, chosen_seed(run)
    if run.member:
        return list(run.member.targets), _RULE_SEASON.format(season=run.member.season, seed=seed)
    if domain:
        struck = domain.struck
        return domain.members, _RULE_DOMAIN.format(share=struck.percent, domain=struck, seed=seed)
    if wanted.names:
        return list(wanted.names), _RULE_NAMED
    names = [candidate.name for candidate in run.kubernetes.candidates(labels)]
    generator.shuffle(names)
    first = "the first " if len(names) == CANDIDATE_PAGE else ""
    rule = _RULE.format(first=first, count=len(names), s="" if len(names) == 1 else "s", seed=seed)
    if run.plan.fault.runs_on is NodeRole.GPU:
        rule += _RULE_FREE + (_RULE_BUSY if judges_running_pods(run.plan) else "")
    return names, rule


def _fit_among(
    run: ReadOnlyRun, names: Sequence[str], labels: Mapping[str, str], excluded_nodes: Mapping[str, str], count: int
) -> tuple[list[NodeSnapshot], list[str]]:
    """Return up to `count` fit nodes, the best first, and what each unfit node lacks."""
    wanted, fit, second_best, unfit = run.plan.targets, list[NodeSnapshot](), list[NodeSnapshot](), list[str]()
    for name in names:
        enough = len(fit) + len(second_best) >= count and len(second_best) > _MOST_UNFIT
        if len(fit) == count or enough or len(unfit) > _MOST_UNFIT:
            break
        seen = run.nodes.look_at(name)
        if seen is None:
            unfit.append(f"{name}: no node of this name in {run.kubernetes.server}")
        elif why := excluded_nodes.get(name) or _unfit(run, seen, labels) or why_never_fit(run.plan, seen.labels):
            unfit.append(f"{name}: {why}")
        elif not run.member and not wanted.names and _leaves_questions_open(run, seen):
            second_best.append(seen)
        else:
            fit.append(seen)
    return [*fit, *second_best][:count], unfit


def judges_running_pods(plan: Plan) -> bool:
    """Return True if a target without GPU pods would leave one of the plan's questions open."""
    return plan.expect.workloads.running_pods != "any"


def _leaves_questions_open(run: ReadOnlyRun, seen: NodeSnapshot) -> bool:
    """Return True if something could not be proved: no GPU pod that must stay, or no free GPU for one that returns."""
    if run.plan.fault.runs_on is not NodeRole.GPU:
        return False
    pods = run.nodes.look_at_pods(seen.node)
    taken = sum(pod.gpus for pod in pods)
    full = seen.allocatable_gpus is not None and taken >= seen.allocatable_gpus
    return full or (judges_running_pods(run.plan) and not pods)


def _unfit(run: ReadOnlyRun, seen: NodeSnapshot, labels: Mapping[str, str]) -> str:
    ordinary = run.profile.ordinary_taints(run.plan.fault.runs_on)
    return why_unfit(seen, labels, run.quarantine_keys, ordinary)


def why_unfit(
    seen: NodeSnapshot, labels: Mapping[str, str], quarantine_keys: Collection[str], ordinary_keys: Collection[str]
) -> str:
    """Return why this node cannot be a target; empty if it can.

    Args:
        seen: The node.
        labels: The labels that a target must carry.
        quarantine_keys: Keys of taints that detectors set.
        ordinary_keys: Keys of taints that targets may carry.
    """
    missing = [f"{key}={value}" for key, value in labels.items() if seen.labels.get(key) != value]
    quarantine = [str(taint) for taint in seen.taints if taint.key in quarantine_keys]
    unexpected = [str(taint) for taint in seen.taints if taint.key not in ordinary_keys]
    if missing:
        return f"lacks label {', '.join(missing)}"
    if seen.conditions.get("Ready") != "True":
        return f"Ready is {seen.conditions.get('Ready', 'not reported')}"
    if seen.unschedulable:
        return "is cordoned"
    if quarantine:
        return f"already carries {', '.join(quarantine)}, which only the detector may set"
    return f"carries {', '.join(unexpected)}" if unexpected else _without_whole_gpus(seen)


def _without_whole_gpus(seen: NodeSnapshot) -> str:
    """Return why our pods, which ask for whole GPUs, could not run there; empty if they can.

    A node that offers GPUs by dynamic resource allocation reports no GPU resource, and is fit.
    """
    work, product = seen.labels.get(_WORK_LABEL, _CONTAINERS), seen.labels.get(_PRODUCT_LABEL, "")
    if work != _CONTAINERS:
        return f"gives its GPUs to virtual machines ({_WORK_LABEL}={work}), and a game-day's pods need them"
    if seen.gpu_parts:
        return f"offers parts of GPUs ({', '.join(seen.gpu_parts)}), and a game-day's pods ask for whole ones"
    if _MIG_PRODUCT in product:
        return f"offers MIG slices as GPUs ({_PRODUCT_LABEL}={product}), and a game-day's pods ask for whole ones"
    return "offers no GPU (allocatable nvidia.com/gpu is 0)" if seen.allocatable_gpus == 0 else ""


def why_never_fit(plan: Plan, labels: Mapping[str, str]) -> str:
    """Return what the plan needs of a node's GPUs but this node lacks; empty if nothing, or if nobody counted.

    Args:
        plan: The plan.
        labels: The node's labels, among them GPU feature discovery's count.
    """
    counted = _counted(labels)
    if counted is None:
        return ""
    wanted, gpu = plan.qa.floors.gpus, getattr(plan.fault, "gpu", None)
    if wanted is not None and wanted != counted:
        return f"has {counted} GPUs, and qa.floors.gpus is {wanted}: QA would keep it out of service"
    if gpu is not None and gpu >= counted:
        return f"has {counted} GPUs, and fault.gpu, which counts from 0, is {gpu}"
    return ""


def physical_gpus(seen: NodeSnapshot) -> int | None:
    """Return the number of GPUs that the node has, or that it offers if that is unknown; None if it offers none."""
    counted = _counted(seen.labels)
    return seen.allocatable_gpus if counted is None else counted


def _counted(labels: Mapping[str, str]) -> int | None:
    counted = labels.get(GPU_COUNT_LABEL, "")
    return int(counted) if counted.isdecimal() else None


def _gpu(run: ReadOnlyRun, seen: NodeSnapshot, generator: random.Random) -> int | None:
    if run.plan.fault.runs_on is not NodeRole.GPU:
        return None
    asked: int | None = getattr(run.plan.fault, "gpu", None)
    if asked is not None:
        return asked
    gpus = physical_gpus(seen)
    return generator.randrange(gpus) if gpus else 0


def unfit_targets(run: ReadOnlyRun, targets: Targets) -> list[str]:
    """Return why chosen targets are no longer fit, as their watches last saw them; empty if all are."""
    labels = opt_in_labels(run)
    now = {target.node: run.nodes.now(target.node) for target in targets}
    why = {node: _unfit(run, seen, labels) if seen else "is gone" for node, seen in now.items()}
    return [f"{node} {reason}" for node, reason in why.items() if reason]
