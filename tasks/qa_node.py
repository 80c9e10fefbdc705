"""Step 6: prove the node good; only then are taint and cordon removed, and only then does it take work again."""

from __future__ import annotations

from datetime import timedelta

from gameday.agent.task import QaResult
from gameday.history.events import NodeReturned, QaChecked
from gameday.ledger.entries import Entry, RestoreNode
from gameday.run.agents import qa_task, run_agent
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import step_task
from gameday.tasks.canary import canary_after
from gameday.tasks.takes_work import takes_work
from gameday.tasks.way_back import intend_return, never_returned
from gameday.values.nodes import Target
from gameday.values.results import Cleanliness, Step

# A controller that re-taints does so within its own loop; Konduktor's is 5 s (docs/sources.md, Konduktor), ours
# reacts to new lines only. Medik8s lost such a race (https://github.com/medik8s/self-node-remediation/pull/30).
_STAYS_CLEAN_FOR = timedelta(seconds=2)


@step_task(name="qa node")
def qa_node(run: Run) -> None:
    """QA, return, and a GPU pod that runs there; a node that fails stays out of service, and the ledger says why."""
    with step(run, Step.QA_NODE, run.plan.qa.within) as result:
        for number, target in enumerate(run.targets):
            if why := run.not_repaired.get(target.node):
                result.broken(f"{target.node} stays out of service, for it was not repaired: {why}")
                never_returned(run, number)
                _keep_out(run, target.node, why)
            elif _passes(run, result, target, number):
                _return(run, result, target, number)
        run.see_nodes_after()


def _passes(run: Run, result: StepResult, target: Target, number: int) -> bool:
    name = run.name("qa", number)
    task = qa_task(run, target.node, number)
    intend_return(run, target, number, with_next=True)
    entry, outcome = run_agent(run, name, task, run.plan.qa.within)
    checked = _results(run, name)
    for found in checked:
        run.note(QaChecked(node=target.node, **found.model_dump()))
    run.undo(entry)
    failed = [f"{c.check}{'' if c.gpu is None else f' of GPU {c.gpu}'}" for c in checked if not c.ok]
    canary = canary_after(run, target, number)
    failed += [canary.check] if canary and not canary.ok else []
    if outcome.ok and checked and not failed:
        return True
    why = f"QA of {target.node} failed: {', '.join(failed[:5]) or outcome.error or 'no results'}"
    result.broken(why)
    never_returned(run, number)
    _keep_out(run, target.node, why)
    return False


def _keep_out(run: Run, node: str, why: str) -> None:
    """A quarantined node that failed, or was not repaired, stays quarantined, and is called dirty; one that never was
    is as it was."""
    now = run.node_now(node)
    for quarantine in _quarantine(run, node):
        assert isinstance(quarantine.undo, RestoreNode)
        if now is None or not quarantine.undo.fits(now):
            run.settle(quarantine, Cleanliness.DIRTY, (why, "the node is kept out of service on purpose"))
        else:
            run.undo(quarantine)


def _results(run: Run, pod: str) -> list[QaResult]:
    results = []
    for line in run.kubernetes.pod_log(pod).splitlines():
        try:
            results.append(QaResult.model_validate_json(line))
        except ValueError:
            continue
    return results


def _quarantine(run: Run, node: str) -> list[Entry]:
    return [e for e in run.ledger.open_entries() if isinstance(e.undo, RestoreNode) and e.node == node]


def _return(run: Run, result: StepResult, target: Target, number: int) -> None:
    tainted = run.node_now(target.node)
    there = frozenset(pod.uid for pod in run.gpu_pods_on(target.node))
    for quarantine in _quarantine(run, target.node):
        if run.undo(quarantine) is not Cleanliness.CLEAN:
            result.broken(f"{target.node} could not be returned")
            never_returned(run, number)
            return
    keys = run.quarantine_keys
    removed = tuple(taint for taint in tainted.taints if taint.key in keys) if tainted else ()
    run.note(NodeReturned(node=target.node, removed_taints=removed, uncordoned=bool(tainted and tainted.unschedulable)))
    in_service = tainted is not None and not removed and not tainted.unschedulable
    takes_work(run, result, target, number, there, in_service=in_service)

    def tainted_again() -> str | None:
        now = run.node_now(target.node)
        back = [str(taint) for taint in now.taints if taint in removed] if now else []
        return ", ".join(back) or None

    again = run.wait(f"{target.node} to stay clean", _STAYS_CLEAN_FOR, tainted_again)
    if again:
        result.broken(f"{target.node} was tainted again after its return: {again}")
