"""The orders for an all-reduce over several nodes, which tasks/moments/all_reduce.py sends and the dry run shows."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping
from datetime import timedelta

from gameday.agent.all_reduce_limits import LONGEST_S
from gameday.agent.task import AllReduceTask, RendezvousNote
from gameday.errors import StepFailedError
from gameday.expect.canary import ExpectedAllReduce
from gameday.faults.base import CanaryJob
from gameday.faults.optional import canary_job_of
from gameday.ledger.lease import held_lease, node_lease
from gameday.run.agents import AGENT_START_TIMEOUT
from gameday.run.canary import CanaryPhase
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import chosen_targets, opt_in_labels, why_unfit

ALL_REDUCE_TIMEOUT = timedelta(seconds=LONGEST_S) + AGENT_START_TIMEOUT
_MOST_UNFIT = 5
"""Looking at a node costs a watch. After this many unfit nodes the cluster is the problem, not the choice."""


def choose_peers(
    run: ReadOnlyRun,
    target: str,
    wanted: int,
    excluded_nodes: Mapping[str, str],
    before: Collection[str] = (),
    gpus: int = 0,
) -> tuple[str, ...]:
    """Choose the other nodes of an all-reduce by the plan's seed, among possible targets that are not targets.

    Nodes of the baseline come first. In a season, a node that another run is breaking comes last.

    Args:
        run: The run.
        target: The node that is measured.
        wanted: The number of other nodes.
        excluded_nodes: The nodes that cannot take part, each with the reason.
        before: The other nodes of the baseline.
        gpus: The number of GPUs that must be free on each.

    Raises:
        StepFailedError: There are too few; the message says what the others lack.
        AdapterError: The cluster does not answer.
    """
    peers: list[str] = []
    broken_by_others: list[str] = []
    unfit: list[str] = []
    for name in _in_order(run, target, before):
        if len(peers) == wanted or len(unfit) + len(broken_by_others) == wanted + _MOST_UNFIT:
            break
        if why := excluded_nodes.get(name) or _unfit(run, name, gpus):
            unfit.append(f"{name}: {why}")
        elif run.member and held_lease(run.kubernetes, node_lease(name)):
            broken_by_others.append(name)
        else:
            peers.append(name)
    chosen = (*peers, *broken_by_others)[:wanted]
    if len(chosen) < wanted:
        raise StepFailedError("; ".join([f"{len(chosen)} of {wanted} peers found for an all-reduce", *unfit]))
    return chosen


def _in_order(run: ReadOnlyRun, target: str, before: Collection[str]) -> list[str]:
    targets = {target, *(chosen.node for chosen in chosen_targets(run.history()))}
    names = [one.name for one in run.kubernetes.candidates(opt_in_labels(run)) if one.name not in targets]
    random.Random(run.plan.targets.seed).shuffle(names)  # noqa: S311 - a stated, repeatable choice
    others = run.member.sibling_nodes if run.member else frozenset[str]()
    return sorted(names, key=lambda name: (name not in before, name in others))


def _unfit(run: ReadOnlyRun, name: str, gpus: int) -> str:
    seen = run.nodes.look_at(name)
    if seen is None:
        return "is gone"
    ordinary = run.profile.ordinary_taints(run.plan.fault.runs_on)
    if why := why_unfit(seen, opt_in_labels(run), run.quarantine_keys, ordinary):
        return why
    if gpus:
        run.nodes.look_at_pods(name)
        return f"{max(0, run.nodes.free_gpus(name))} GPUs are free" if run.nodes.free_gpus(name) < gpus else ""
    return ""


def all_reduce_task(
    run: ReadOnlyRun,
    expected: ExpectedAllReduce,
    nodes: Collection[str],
    rank: int,
    phase: CanaryPhase,
    secret: str,
    size: int,
    lead: RendezvousNote | None = None,
) -> AllReduceTask:
    """Return the order for one rank.

    Args:
        run: The run.
        expected: The plan's all-reduce.
        nodes: All nodes in the order of their ranks; the target is the first.
        rank: The rank.
        phase: Before, during or after the fault.
        secret: The secret that the ranks prove to know.
        size: Bytes of a round; 0: rank 0 chooses it.
        lead: The address at which rank 0 waits; None for rank 0 itself.
    """
    fault = run.plan.fault
    job = canary_job_of(fault) if phase == "during" and expected.gpus else CanaryJob()
    return AllReduceTask(
        run_id=run.id,
        node=tuple(nodes)[rank],
        rank=rank,
        nodes=tuple(nodes),
        backend=expected.backend,
        gpus=expected.gpus,
        interface=expected.interface,
        hca=expected.hca,
        environment=job.environment,
        secret=secret,
        lead_address=lead.address if lead else "",
        lead_port=lead.port if lead else 0,
        bytes=size,
    )
