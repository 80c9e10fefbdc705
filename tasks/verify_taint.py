"""Step 4: check the containment: a bad node is out of service and gets no new work, or a load is held back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from gameday.observe.injected_fault import InjectedFault
from gameday.observe.node_states import note_nodes_during
from gameday.observe.signals import await_signals
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import judged_step
from gameday.tasks.moments import Moment, happen
from gameday.tasks.quarantine_workloads import check_new_work_is_kept_off
from gameday.tasks.running_pods import note_running_pods
from gameday.values.results import Step


@judged_step("verify taint")
def verify_taint(run: Run, faults: Sequence[InjectedFault]) -> None:
    """Wait for the quarantine (for a negative control: for none), then check workloads and signals.

    Raises:
        StopRunError: The run was stopped, or a server that the step needs does not answer.
    """
    expect = run.plan.expect
    bounds = [bound for (key, *_), bound in expect.all_bounds() if key != "alerts"]
    quarantine = [one for one in expect.signals_awaited() if one.quarantines]
    others = [one for one in expect.signals_awaited() if not (one.quarantines or one.awaited_apart)]
    with step(run, Step.VERIFY_TAINT, max(bounds, default=timedelta())) as result:
        nodes = {fault.node for fault in faults}
        quarantined: dict[str, bool] = {}
        for fault in faults:
            happen(Moment.DURING_FAULT, run, result, fault)
            quarantined[fault.node] = await_signals(run, result, fault, quarantine)
        # New work is checked once every target has had its time: earlier, a second target may still look healthy.
        for fault in faults:
            if expect.stays_schedulable_for:
                _check_stays_schedulable(run, result, expect.stays_schedulable_for, fault)
            elif expect.expects_quarantine and quarantined[fault.node] and not run.plan.recover.is_hands_off:
                check_new_work_is_kept_off(run, result, fault.target, nodes)
            note_running_pods(run, fault)
            await_signals(run, result, fault, others)
            happen(Moment.SIGNALS_SEEN, run, result, fault)
        happen(Moment.CONTAINED, run, result)
        note_nodes_during(run, nodes)


def _check_stays_schedulable(run: Run, result: StepResult, quiet: timedelta, fault: InjectedFault) -> None:
    before, node = fault.target.before, fault.node

    def quarantined() -> str | None:
        now = run.nodes.now(node)
        gained = [str(taint) for taint in now.taints if taint not in before.taints] if now else []
        return ", ".join(gained) or ("cordoned" if now and now.unschedulable else None)

    what = f"{node} to stay schedulable"
    found = run.wait(what, fault.time_left(quiet, run.clock.now()), quarantined)
    if found:
        result.mark_broken(f"{node} was quarantined by a fault that should not: {found}")
