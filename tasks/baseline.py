"""Step 1: choose the targets, and check that the cluster is in the state that the plan assumes.

Nothing is broken yet, so every problem is a refusal, not a failure.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from gameday.agent.task import DcgmEnginesNote, GpuPodsNote, notes_in
from gameday.cluster.prometheus import AlertingRule
from gameday.documents.fields import format_duration
from gameday.errors import AdapterError, KubernetesError, LeaseHeldError, RefusedError, StepFailedError
from gameday.faults.optional import needs_of
from gameday.guard.check import guard_before
from gameday.history.events import NodeSeen, SteadyStateChecked
from gameday.history.sampling import FEWEST_BASELINE_SCRAPES
from gameday.ledger.lease import lease_refusal, node_lease
from gameday.observe.alerts import note_active_alerts
from gameday.observe.api_server_metrics import NOMINAL_SEATS
from gameday.observe.guest_watch import watch_guest
from gameday.observe.kernel_log import lines_containing
from gameday.observe.nvml import start_sampler
from gameday.observe.signals import signals_before_fault
from gameday.reaper.reap import reap_under
from gameday.remediations.registry import remediation_for
from gameday.run.agents import (
    AGENT_START_TIMEOUT,
    ENGINES_HINT,
    GPU_RESET_HINT,
    PRIORITY_CLASS_HINT,
    engines_in,
    gpu_users_left,
    mark_task,
    run_agent,
)
from gameday.run.operands import refuse_operands_that_would_stay_away, uids_before_reset
from gameday.run.run import Run
from gameday.run.steps import step
from gameday.run.targets import ChosenTarget, Targets, choose_targets
from gameday.tasks import judged_step
from gameday.tasks.moments import Moment, happen
from gameday.values.nodes import NodeRole, NodeSnapshot
from gameday.values.results import Cleanliness, Step

# Two samples prove that a series is being scraped and is not a leftover. Our own choice of time: enough for two scrapes
# at a pace of 15 s, the rehearsal's at 1,000 nodes.
_SAMPLES = 2
_SAMPLING_TIMEOUT = timedelta(seconds=45)


@judged_step("baseline")
def baseline(run: Run) -> Targets:
    """Choose and lock the targets, and check steady state, log path and a window of metrics.

    Returns:
        The chosen nodes, each with its GPU and its state before the run.

    Raises:
        RefusedError: Something is wrong; nothing was changed.
        AbortedError: The run was stopped.
    """
    with step(run, Step.BASELINE):
        try:
            rules = _expected_rules(run)
            targets = choose_targets(run, run.excluded_nodes)
            _lock_nodes(run, targets)
            run.nodes.follow_targets(target.before for target in targets)
            watch_guest(run, targets)
            guard_before(run, targets)
            for target in targets:
                run.note(NodeSeen(phase="before", snapshot=target.before))
                _refuse_early_signals(run, target.before)
                run.note(
                    SteadyStateChecked(
                        name="node ready", ok=True, detail="Ready, schedulable, no unexpected taint", node=target.node
                    )
                )
            _refuse_early_alerts(run, targets, rules)
            gpu_pods = dict[str, list[GpuPodsNote]]()
            for target in targets:
                if run.plan.fault.runs_on is NodeRole.GPU:
                    gpu_pods[target.node] = notes_in(_check_log_path(run, target), GpuPodsNote)
                    start_sampler(run, target)
                happen(Moment.BEFORE_FAULT_ON, run, target)
            happen(Moment.BEFORE_FAULT, run, targets, gpu_pods)
            _await_baseline_window(run, targets[0].node)
            return targets
        except StepFailedError as error:
            raise RefusedError(error.why, error.hint) from None
        except AdapterError as error:
            raise RefusedError(f"{error.url}: {error.cause}", error.hint) from None


def _expected_rules(run: Run) -> dict[str, AlertingRule]:
    """Return the expected alerts' rules by name. Raises RefusedError if one is missing or does not evaluate."""
    rules: dict[str, AlertingRule] = {}
    for expected in run.plan.expect.alerts:
        rule = run.servers.prometheus.rule(expected.name)
        if rule is None:
            raise RefusedError(
                f"Prometheus {run.profile.prometheus.url} has no alerting rule {expected.name}",
                "load deploy/alerts, or change expect.alerts in the plan",
            )
        if rule.last_error:
            raise RefusedError(f"rule {expected.name} does not evaluate: {rule.last_error}")
        run.note(SteadyStateChecked(name=f"rule {expected.name} exists", ok=True, detail=f"for {rule.hold_s:g} s"))
        rules[expected.name] = rule
    return rules


def _lock_nodes(run: Run, targets: Targets) -> None:
    duration = run.profile.guardrails.longest_run(run.plan.guardrails)
    for target in targets:
        try:
            _lock_node(run, node_lease(target.node), duration)
        except LeaseHeldError as error:
            raise lease_refusal(error) from None


def _lock_node(run: Run, lease: str, duration: timedelta) -> None:
    """Take a node's lease. Raises LeaseHeldError."""
    try:
        run.leases.acquire(lease, duration)
    except LeaseHeldError:
        if run.member is not None:
            raise
        # We hold the cluster's lease, so the run that holds the node's lease is dead, and has left nothing else.
        reap_under(run.kubernetes, run.id)
        run.leases.acquire(lease, duration)


def _refuse_early_alerts(run: Run, targets: Targets, rules: dict[str, AlertingRule]) -> None:
    """Note the alerts that are already firing, and refuse if an expected one is."""
    nodes = {target.node for target in targets}
    active = note_active_alerts(run, nodes, at_baseline=True)
    held = run.servers.alertmanager.silences() if rules else []
    for expected in run.plan.expect.alerts:
        early = [
            seen
            for seen in active
            if seen.alert == expected.name and seen.node in {expected.about(node) for node in nodes}
        ]
        if early:
            raise RefusedError(
                f"alert {expected.name} is already {early[0].state} for {early[0].node or 'the cluster'}",
                "it would not show our fault; wait until it is silent",
            )
        labels = {**rules[expected.name].labels, **expected.labels, "alertname": expected.name}
        silences = [
            silence
            for silence in held
            for node in {expected.about(target) for target in nodes}
            if silence.mutes({**labels, **({run.profile.alert_node_label: node} if node else {})})
        ]
        if silences:
            raise RefusedError(
                f"alert {expected.name} is silenced by {silences[0].created_by} until {silences[0].ends_at:%H:%M} UTC",
                "expire the silence, or run when it has ended",
            )
        run.note(
            SteadyStateChecked(
                name=f"alert {expected.name} silent", ok=True, detail="not pending, not firing, not silenced"
            )
        )


def _refuse_early_signals(run: Run, seen: NodeSnapshot) -> None:
    if early := signals_before_fault(run, seen):
        raise RefusedError(
            f"{seen.node}: {'; '.join(early)}",
            "they would not show our fault; mend the node, or choose another",
        )


def _check_log_path(run: Run, target: ChosenTarget) -> str:
    """Send a harmless marker line through the kernel log and find it in the log store.

    Returns:
        The agent's further output about the node; empty if it was not asked for any.

    Raises:
        RefusedError: The line does not arrive, or the agent saw why the plan cannot be played there.
        AdapterError: The cluster or the log store does not answer.
    """
    marker = run.record.log_marker(target.index)
    name = run.record.object_name("mark", target.index)
    timeout = run.plan.baseline.log_path_within
    resets = remediation_for(run.plan.recover.remediation).needs_idle_gpu
    moves_operands = resets or needs_of(run.plan.fault).operands_away
    leaving: set[str] = set()
    if moves_operands:
        refuse_operands_that_would_stay_away(run, target.node)
        leaving = uids_before_reset(run, target.node)
    task = mark_task(run, target)
    try:
        entry, outcome = run_agent(run, name, task, AGENT_START_TIMEOUT)
    except KubernetesError as error:
        if error.status != 403 or "PriorityClass" not in error.cause:
            raise
        raise RefusedError(error.cause, PRIORITY_CLASS_HINT) from None
    if not outcome.ok or outcome.written_at is None:
        raise RefusedError(f"the first look at {target.node} failed: {outcome.error or 'no time given'}")
    printed = run.kubernetes.pod_log(name) if resets or task.dcgm_engines or task.gpu_pods else ""
    if engines := engines_in(printed):
        _refuse_blind_readers(target, engines)
    if resets:
        leaving |= uids_before_reset(run, target.node)
        _refuse_reset_with_users(target, gpu_users_left(printed, leaving))
    written = outcome.written_at

    def found() -> datetime | None:
        lines = lines_containing(run, target.node, f"marker {marker}", since=written - timedelta(minutes=1))
        return run.clock.now() if lines else None

    seen = run.wait(f"marker {marker} of {target.node} in the log store", timeout, found, every_s=0.2)
    if seen is None:
        raise RefusedError(
            f"the log path of {target.node} is not alive: a marker written at {written:%H:%M:%S} UTC was not in "
            f"{run.profile.loki.url} after {timeout.total_seconds():g} s",
            "is the dmesg shipper running on the node?",
        )
    latency = (seen - written).total_seconds()
    run.note(
        SteadyStateChecked(
            name="log path alive",
            ok=True,
            detail=f"marker found after {latency:.1f} s",
            node=target.node,
            seconds=latency,
        )
    )
    if run.undo(entry) is not Cleanliness.CLEAN:
        raise RefusedError(f"marker pod {name} could not be deleted")
    return printed


def _refuse_reset_with_users(target: ChosenTarget, users: list[str]) -> None:
    """Refuse if the repair would fail, so that a healthy node would stay out of service."""
    if users:
        raise RefusedError(
            f"GPU {target.gpu} of {target.node} could not be reset: {'; '.join(users)} has it open, and does not leave "
            "when the node is drained",
            GPU_RESET_HINT,
        )


def _refuse_blind_readers(target: ChosenTarget, engines: DcgmEnginesNote) -> None:
    """Refuse if the reader that has to see the fault asks another DCGM engine than the one it goes into."""
    if engines.blind:
        raise RefusedError(f"{target.node}: {'; '.join(engines.blind)}", ENGINES_HINT)


def _await_baseline_window(run: Run, node: str) -> None:
    """Wait until the fault's target is sampled and the window is over: charts need a steady state to compare with."""
    series, of, scraper = _sampled_series(run, node)

    def scrapes(since: str) -> float:
        query = f"max(count_over_time({series}[{since}]))"
        return max((found.value for found in run.servers.prometheus.query(query)), default=0.0)

    def sampled() -> bool | None:
        return scrapes("5m") >= _SAMPLES or None

    name = f"metrics of {of}"
    if run.wait(f"Prometheus to sample {of}", _SAMPLING_TIMEOUT, sampled, every_s=0.5):
        run.note(SteadyStateChecked(name=name, ok=True, detail="sampled by Prometheus", node=node))
    else:
        run.note(SteadyStateChecked(name=name, ok=None, detail=f"Prometheus holds no {series}", node=node))
        run.problem(f"Prometheus holds no {series}", f"let Prometheus scrape {scraper}")
    window = run.plan.baseline.window
    run.wait(
        f"the baseline window of {format_duration(window)}",
        run.record.started + window - run.clock.now(),
        lambda: None,
    )
    since = max(1, round((run.clock.now() - run.record.started + window).total_seconds()))
    held = scrapes(f"{since}s")
    # Bands and robust z are those of a GPU's metrics.
    if 0 < held < FEWEST_BASELINE_SCRAPES and run.plan.fault.runs_on is NodeRole.GPU:
        run.problem(
            f"{held:g} scrapes of {of} in the {since} s before the fault: fewer than {FEWEST_BASELINE_SCRAPES} do "
            "not show what is usual, so the report may lack bands and robust z",
            f"a longer baseline.window, or more frequent scrapes of {scraper}",
        )


def _sampled_series(run: Run, node: str) -> tuple[str, str, str]:
    """Return a series that shows the fault's target in steady state, what it is of, and what scrapes it."""
    if run.plan.fault.runs_on is NodeRole.API_CLIENT:
        return NOMINAL_SEATS.name, "the API servers", "the API servers"
    label = run.profile.prometheus_node_label
    return (
        f'DCGM_FI_DEV_GPU_TEMP{{{label}="{node}"}}',
        node,
        f"dcgm-exporter, with the node's name in the label {label}",
    )
