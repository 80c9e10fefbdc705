"""Step 1: choose the targets and make sure the cluster is in the state the plan believes it to be in.

Nothing has been changed yet that anybody would notice, so whatever is not as
it should be is a refusal, not a failure.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gameday.cluster.prometheus import AlertingRule
from gameday.documents.fields import format_duration
from gameday.errors import AdapterError, KubernetesError, LeaseHeldError, RefusedError, StepFailedError
from gameday.guard.check import guard_before
from gameday.guard.observation import longest_run
from gameday.history.events import NodeSeen, SteadyStateChecked
from gameday.ledger.lease import node_lease
from gameday.observe.alerts import note_active_alerts
from gameday.observe.kernel_log import lines_with
from gameday.observe.signals import already_there
from gameday.plan.models import RemediationAction
from gameday.reaper.reap import reap_under
from gameday.report.samples import FEWEST_BEFORE
from gameday.run.agents import AGENT_STARTS_WITHIN, PRIORITY_CLASS_FIX, RESET_FIX, forbids_reset, mark_task, run_agent
from gameday.run.drain import pods_to_drain
from gameday.run.run import Run
from gameday.run.steps import step
from gameday.run.targets import choose_targets
from gameday.tasks import step_task
from gameday.tasks.canary import canary_before
from gameday.values.nodes import NodeSnapshot, Target
from gameday.values.results import Cleanliness, Step

# Two samples prove that a series is being scraped and not merely left over. Our own choice of patience: enough for
# two scrapes at a pace of 15 s, the rehearsal's at 1,000 nodes.
_SAMPLES = 2
_SAMPLED_WITHIN = timedelta(seconds=45)


@step_task(name="baseline")
def baseline(run: Run) -> None:
    """Targets, steady state, log path, and a window of frames. Raises RefusedError for whatever is amiss."""
    with step(run, Step.BASELINE):
        try:
            rules = _expected_rules(run)
            chosen = choose_targets(run)
            _lock_nodes(run, chosen.targets)
            run.targets = chosen.targets
            run.follow_targets(chosen.snapshots)
            guard_before(run)
            for seen in chosen.snapshots:
                run.note(NodeSeen(phase="before", snapshot=seen))
                _nothing_is_said_yet(run, seen)
                run.note(
                    SteadyStateChecked(
                        name="node ready", ok=True, detail="Ready, schedulable, no unexpected taint", node=seen.node
                    )
                )
            _alerts_are_silent(run, rules)
            for number, target in enumerate(chosen.targets):
                _log_path_is_alive(run, target, number)
                canary_before(run, target, number)
            _window_is_full(run)
        except StepFailedError as error:
            raise RefusedError(error.why, error.hint) from None
        except AdapterError as error:
            raise RefusedError(f"{error.url}: {error.cause}", error.hint) from None


def _expected_rules(run: Run) -> dict[str, AlertingRule]:
    """By name; refuses where one is missing or does not evaluate."""
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


def _lock_nodes(run: Run, targets: tuple[Target, ...]) -> None:
    lasts = longest_run(run.plan.guardrails, run.profile.guardrails)
    for target in targets:
        try:
            _lock_node(run, node_lease(target.node), lasts)
        except LeaseHeldError as error:
            raise RefusedError(str(error), f"wait for run {error.holder}, or `gameday reap` if it is dead") from None


def _lock_node(run: Run, lease: str, lasts: timedelta) -> None:
    """Raises LeaseHeldError."""
    try:
        run.leases.acquire(lease, lasts)
    except LeaseHeldError:
        if run.member is not None:
            raise
        # We hold the cluster's lease, so that whoever holds the node's is dead: a run that left nothing else.
        reap_under(run.kubernetes, run.id)
        run.leases.acquire(lease, lasts)


def _alerts_are_silent(run: Run, rules: dict[str, AlertingRule]) -> None:
    """What fires already is noted and never blamed on us; an expected alert that does is a refusal."""
    active = note_active_alerts(run, at_baseline=True)
    targets = {target.node for target in run.targets}
    held = run.servers.alertmanager.silences() if rules else []
    for expected in run.plan.expect.alerts:
        early = [
            seen
            for seen in active
            if seen.alert == expected.name and seen.node in {expected.about(node) for node in targets}
        ]
        if early:
            raise RefusedError(
                f"alert {expected.name} is already {early[0].state} for {early[0].node or 'the cluster'}",
                "it could not tell our fault from what made it fire; wait until it is silent",
            )
        labels = {**rules[expected.name].labels, **expected.labels, "alertname": expected.name}
        silences = [
            silence
            for silence in held
            for node in {expected.about(target) for target in targets}
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


def _nothing_is_said_yet(run: Run, seen: NodeSnapshot) -> None:
    if early := already_there(run, seen):
        raise RefusedError(
            f"{seen.node}: {'; '.join(early)}",
            "it could not tell our fault from what caused that; mend the node, or choose another",
        )


def _log_path_is_alive(run: Run, target: Target, number: int) -> None:
    """Send a harmless marker line through the kernel log and find it in the log store."""
    marker = run.marker(number)
    name = run.name("mark", number)
    within = run.plan.baseline.log_path_within
    leaving = {pod.uid for pod in pods_to_drain(run, target.node)}
    try:
        entry, outcome = run_agent(run, name, mark_task(run, target, marker), AGENT_STARTS_WITHIN)
    except KubernetesError as error:
        if error.status != 403 or "PriorityClass" not in error.cause:
            raise
        raise RefusedError(error.cause, PRIORITY_CLASS_FIX) from None
    if not outcome.ok or outcome.written_at is None:
        raise RefusedError(f"the first look at {target.node} failed: {outcome.error or 'no time given'}")
    if run.plan.recover.remediation is RemediationAction.GPU_RESET:
        leaving |= {pod.uid for pod in pods_to_drain(run, target.node)}
        _gpu_can_be_reset(target, forbids_reset(run.kubernetes.pod_log(name), leaving))
    written = outcome.written_at

    def found() -> datetime | None:
        lines = lines_with(run, target.node, f"marker {marker}", since=written - timedelta(minutes=1))
        return datetime.now(UTC) if lines else None

    seen = run.wait(f"marker {marker} of {target.node} in the log store", within, found, every_s=0.2)
    if seen is None:
        raise RefusedError(
            f"the log path of {target.node} is not alive: a marker written at {written:%H:%M:%S} UTC was not in "
            f"{run.profile.loki.url} after {within.total_seconds():g} s",
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


def _gpu_can_be_reset(target: Target, users: list[str]) -> None:
    """Otherwise the repair would fail, and a healthy node would stay out of service."""
    if users:
        raise RefusedError(
            f"GPU {target.gpu} of {target.node} could not be reset: {'; '.join(users)} has it open, and does not leave "
            "when the node is drained",
            RESET_FIX,
        )


def _window_is_full(run: Run) -> None:
    """The charts need a steady state to compare with: wait until the target is sampled and the window is past."""
    target, label = run.targets[0].node, run.profile.prometheus_node_label

    def scrapes(since: str) -> float:
        query = f'max(count_over_time(DCGM_FI_DEV_GPU_TEMP{{{label}="{target}"}}[{since}]))'
        return max((found.value for found in run.servers.prometheus.query(query)), default=0.0)

    def sampled() -> bool | None:
        return scrapes("5m") >= _SAMPLES or None

    if run.wait(f"Prometheus to sample {target}", _SAMPLED_WITHIN, sampled, every_s=0.5):
        run.note(SteadyStateChecked(name="metrics of the target", ok=True, detail="sampled by Prometheus", node=target))
    else:
        detail = f"Prometheus holds no DCGM_FI_DEV_GPU_TEMP of it under the label {label}"
        run.note(SteadyStateChecked(name="metrics of the target", ok=None, detail=detail, node=target))
        run.problem(f"no dcgm-exporter series of {target} in Prometheus", f"the node's label is expected in {label}")
    window = run.plan.baseline.window
    run.wait(
        f"the baseline window of {format_duration(window)}", run.started + window - datetime.now(UTC), lambda: None
    )
    since = max(1, round((datetime.now(UTC) - run.started + window).total_seconds()))
    held = scrapes(f"{since}s")
    if 0 < held < FEWEST_BEFORE:
        run.problem(
            f"{held:g} scrapes of {target} in the {since} s before the fault: fewer than {FEWEST_BEFORE} do not tell "
            "what is usual, so the report may lack bands and robust z",
            "a longer baseline.window, or more frequent scrapes of dcgm-exporter",
        )
