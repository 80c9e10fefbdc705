"""Step 4: check the containment: a bad node is out of service and gets no new work, or a load is held back."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from gameday.checks import taints
from gameday.observe.deadline import await_within
from gameday.observe.device_taints import await_device_taints, note_devices_during
from gameday.observe.injected_fault import InjectedFault
from gameday.observe.node_states import note_nodes_during
from gameday.observe.signals import await_cordon, await_signals, signal_bounds
from gameday.run.run import Run
from gameday.run.steps import StepResult, step
from gameday.tasks import judged_step
from gameday.tasks.api_canary import judge_during_fault
from gameday.tasks.canary import measure_during_fault
from gameday.tasks.gang import check_gang_placement
from gameday.tasks.probes import await_probes
from gameday.tasks.quarantine_workloads import check_new_work_is_kept_off
from gameday.tasks.running_pods import note_running_pods
from gameday.tasks.topology_probe import check_misaligned_pod
from gameday.values.results import Step


@judged_step("verify taint")
def verify_taint(run: Run, faults: Sequence[InjectedFault]) -> None:
    """Wait for the quarantine (for a negative control: for none), then check workloads and signals.

    Raises:
        StopRunError: The run was stopped, or a server that the step needs does not answer.
    """
    expect = run.plan.expect
    bounds = [taint.within for taint in expect.taints] + [expect.stays_schedulable_for or timedelta()]
    bounds += [expect.cordoned.within] if expect.cordoned else []
    bounds += [taint.pods_leave_within or taint.within for taint in expect.device_taints]
    bounds += [probe.within or probe.stays_for or timedelta() for probe in expect.probes]
    with step(run, Step.VERIFY_TAINT, max([*bounds, *signal_bounds(run)])) as result:
        nodes = {fault.node for fault in faults}
        quarantined: dict[str, bool] = {}
        for fault in faults:
            judge_during_fault(run, result, fault)
            measure_during_fault(run, result, fault.target)
            check_misaligned_pod(run, result, fault.target)
            await_device_taints(run, result, fault)
            quarantined[fault.node] = _await_quarantine(run, result, fault)
        # New work is checked once every target has had its time: earlier, a second target may still look healthy.
        for fault in faults:
            if expect.stays_schedulable_for:
                _check_stays_schedulable(run, result, expect.stays_schedulable_for, fault)
            elif expect.expects_quarantine and quarantined[fault.node] and not run.plan.recover.is_hands_off:
                check_new_work_is_kept_off(run, result, fault.target, nodes)
            note_running_pods(run, fault)
            await_signals(run, result, fault)
            note_devices_during(run, result, fault)
        check_gang_placement(run, result)
        await_probes(run, result)
        note_nodes_during(run, nodes)


def _await_quarantine(run: Run, result: StepResult, fault: InjectedFault) -> bool:
    """Wait for every expected taint and for the cordon; return True if all came."""
    all_came = True
    for expected in run.plan.expect.taints:
        what = f"taint {expected.key}={expected.value}:{expected.effect} on {fault.node}"
        sightings = partial(taints.sightings, expected, node=fault.node)
        if not await_within(run, result, what, expected.within, fault, sightings):
            all_came = False
    return await_cordon(run, result, fault) and all_came


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
