"""Step 6: prove the node good; only then remove taint and cordon, so that it takes work again.

On a node that the cluster repaired and gave back itself, QA only reads, and touches no taint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta

from gameday.agent.task import QaResult, notes_in
from gameday.history.events import NodeReturned, QaChecked, QaLeftOut
from gameday.observe.alerts import await_resolved
from gameday.observe.node_states import note_nodes_after
from gameday.run.agents import qa_task, run_agent
from gameday.run.quarantine import keep_out_of_service
from gameday.run.repair import Repair
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.run.targets import ChosenTarget
from gameday.tasks import judged_step
from gameday.tasks.moments import Moment, happen
from gameday.tasks.return_to_service import check_takes_work, intend_return, void_return
from gameday.values.alert_families import fires_until_returned
from gameday.values.nodes import NodeRole, Taint
from gameday.values.results import Cleanliness, Step

# A controller that taints again does so within its own loop; Konduktor's is 5 s (docs/sources.md, Konduktor), ours
# reacts to new lines only. Medik8s lost such a race (https://github.com/medik8s/self-node-remediation/pull/30).
_STAYS_CLEAN_FOR = timedelta(seconds=2)


@judged_step("qa node")
def qa_node(run: Run, repairs: Sequence[Repair]) -> None:
    """Prove each node good, return it, and see a GPU pod run there; a node that fails stays out of service.

    Raises:
        StopRunError: The run was stopped, or a server that the step needs does not answer.
    """
    with step(run, Step.QA_NODE, run.plan.qa.longest) as result:
        for repair in repairs:
            happen(Moment.QA_BEGINS, run, result, repair.target)
            if run.plan.fault.runs_on is not NodeRole.GPU:
                continue
            target, why = repair.target, repair.left_out_because
            if why and repair.cluster_repairs:
                _leave_out(run, result, target.node, why)
            elif why:
                result.mark_broken(f"{target.node} stays out of service, for it was not repaired: {why}")
                void_return(run, target)
                keep_out_of_service(run, target.node, why)
            elif _passes(run, result, target):
                if repair.cluster_repairs:
                    existing_uids = frozenset(pod.uid for pod in run.nodes.gpu_pods_on(target.node))
                    check_takes_work(run, result, target, existing_uids, in_service=True)
                elif _return(run, result, target):
                    _await_alerts_of_quarantine(run, result, target.node, [one.target.node for one in repairs])
        happen(Moment.RETURNED, run, result)
        note_nodes_after(run, [repair.target.node for repair in repairs])


def _leave_out(run: Run, result: StepResult, node: str, why: str) -> None:
    """Leave out QA of a node that the cluster repairs; a plan that keeps it out of service wants none."""
    run.note(QaLeftOut(node=node, why=why))
    if run.plan.recover.gives_node_back:
        result.mark_unknown(f"QA of {node} is left out: {why}")


def _passes(run: Run, result: StepResult, target: ChosenTarget) -> bool:
    name = run.record.object_name("qa", target.index)
    intend_return(run, target, defer_write=True)
    entry, outcome = run_agent(run, name, qa_task(run, target), run.plan.qa.longest)
    checked = notes_in(run.kubernetes.pod_log(name), QaResult)
    for check in checked:
        run.note(QaChecked(node=target.node, **check.model_dump()))
    run.undo(entry)
    failed = [f"{c.check}{'' if c.gpu is None else f' of GPU {c.gpu}'}" for c in checked if not c.ok]
    further = [check for checks in happen(Moment.QA_CHECKS, run, target) for check in checks]
    failed += [check.check for check in further if not check.ok]
    if outcome.ok and checked and not failed:
        return True
    why = f"QA of {target.node} failed: {', '.join(failed[:5]) or outcome.error or 'no results'}"
    result.mark_broken(why)
    void_return(run, target)
    keep_out_of_service(run, target.node, why)
    return False


def _return(run: Run, result: StepResult, target: ChosenTarget) -> bool:
    """Take the quarantine off and check that the node works; return True if it is off."""
    tainted = run.nodes.now(target.node)
    existing_uids = frozenset(pod.uid for pod in run.nodes.gpu_pods_on(target.node))
    for quarantine in run.ledger.quarantines_of(target.node):
        if run.undo(quarantine) is not Cleanliness.CLEAN:
            result.mark_broken(f"{target.node} could not be returned")
            void_return(run, target)
            return False
    keys = run.quarantine_keys
    removed = tuple(taint for taint in tainted.taints if taint.key in keys) if tainted else ()
    run.note(NodeReturned(node=target.node, removed_taints=removed, uncordoned=bool(tainted and tainted.unschedulable)))
    in_service = tainted is not None and not removed and not tainted.unschedulable
    check_takes_work(run, result, target, existing_uids, in_service=in_service)
    _check_stays_clean(run, result, target.node, removed)
    return True


def _await_alerts_of_quarantine(run: Run, result: StepResult, node: str, nodes: Collection[str]) -> None:
    for expected in run.plan.expect.alerts:
        if fires_until_returned(expected.name):
            await_resolved(run, result, expected, node, nodes)


def _check_stays_clean(run: Run, result: StepResult, node: str, removed: Collection[Taint]) -> None:
    def tainted_again() -> str | None:
        now = run.nodes.now(node)
        back = [str(taint) for taint in now.taints if taint in removed] if now else []
        return ", ".join(back) or None

    again = run.wait(f"{node} to stay clean", _STAYS_CLEAN_FOR, tainted_again)
    if again:
        result.mark_broken(f"{node} was tainted again after its return: {again}")
