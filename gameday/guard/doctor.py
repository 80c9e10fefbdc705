"""Check everything that a run of a plan needs, with the next step where something is missing.

It only reads, unless it may send a pod. Rights are checked by access reviews, one for each right. After a part that
fails the next one is checked all the same.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from gameday.agent.security import api_account_of, security_of
from gameday.agent.task import ApiCanaryTask, DcgmEnginesNote, InjectTask
from gameday.cluster.manifests import agent_pod, gpu_canary
from gameday.cluster.pods import PodFollower
from gameday.cluster.prometheus import AlertingRule
from gameday.errors import AdapterError, KubernetesError, RefusedError
from gameday.guard.alert_pace import pace_of
from gameday.guard.check import check_all
from gameday.guard.gpu_access import gpu_access
from gameday.guard.preview import fault_warnings
from gameday.guard.read_only_run import choose_and_follow
from gameday.guard.rights import Right, rights_for, rights_of_job_log, rights_of_probes, rights_of_the_control_plane
from gameday.guard.rule_series import CONTROLLER_METRICS, RuleSeries
from gameday.ledger.lease import CLUSTER_LEASE, as_held, lease_refusal, read_lease
from gameday.ledger.ledger import ledger_name, stored_ledgers
from gameday.ledger.termination_message import termination_message
from gameday.observe.api_server_metrics import (
    API_SERVER_JOB,
    NOMINAL_SEATS,
    RESIDENT_MEMORY,
    SERVER_LABEL,
    STORAGE_BYTES,
)
from gameday.observe.guest_watch import guest_trouble
from gameday.plan.expectations import ExpectedAlert
from gameday.plan.models import FaultParameters
from gameday.reaper.excluded_nodes import node_reasons
from gameday.run.agents import (
    AGENT_START_TIMEOUT,
    ENGINES_HINT,
    GPU_RESET_HINT,
    agent_manifest,
    asks_dcgm,
    engines_in,
    gpu_users_left,
    injector_deadline,
    mark_task,
)
from gameday.run.operands import uids_before_reset
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.alert_families import others_of_meaning, sources_of
from gameday.values.nodes import NodeRole

# A kernel log may be silent for long, but a node that wrote nothing for a day into the store has no shipper.
_LOG_LOOK_BACK = timedelta(hours=24)
# Seconds. Chains are timed by several clocks, and the report names a drift above half a second; our own choice.
_MOST_CLOCK_OFFSET_S = 1.0
_POD_GONE_TIMEOUT_S = 10.0
_MOST_PODS = 500
_HOW_TO_CONSENT = (
    "put the label and the library into the pods' template (docs/cuda-errors.md), or choose a node that runs such a pod"
)
_ENGINES = "DCGM's readers see the fault"
_OUR_DETECTOR = "gameday"  # the profile of our node-health controller


@dataclass(frozen=True)
class Prerequisite:
    """A thing that a run needs, and whether it is there."""

    area: str
    name: str
    ok: bool | None
    """True if the check is passed; None: unknown, for the reason in `detail`."""
    detail: str
    fix: str = ""
    """The next step where it is not ok."""
    measured: str = field(default="", compare=False)
    """The value of this look, such as `0.1 s`. Two checks that differ in nothing else say the same."""

    @property
    def found(self) -> str:
        """The measured value, if there is one, and the detail."""
        return "; ".join(filter(None, (self.measured, self.detail)))


def check_prerequisites(run: ReadOnlyRun, *, send_pod: bool) -> Iterator[Prerequisite]:
    """Yield every prerequisite as it is checked.

    Args:
        run: A run whose targets are not chosen yet.
        send_pod: Send the agent to a target, which is the only change; False: change nothing.
    """
    yield from checked_part("kubernetes", _cluster(run))
    yield from checked_part("rights", _rights(run))
    loads_api_servers = run.plan.fault.runs_on is NodeRole.API_CLIENT
    yield from checked_part("kubernetes", _api_canary(run) if loads_api_servers else _canaries(run))
    yield from checked_part("prometheus", _prometheus(run))
    if loads_api_servers:
        yield from checked_part("prometheus", _api_servers(run))
    yield from checked_part("alertmanager", _alertmanager(run))
    targets: Targets = ()
    try:
        targets = choose_and_follow(run)
    except (RefusedError, AdapterError) as error:
        yield _failed("targets", error)
    yield from checked_part("targets", _targets(run, targets))
    if not loads_api_servers:
        yield from checked_part("gpus", _gpus(run, targets))
    yield from checked_part("workload", _workload(run, targets))
    yield from checked_part("detectors", _detectors(run, targets))
    yield from checked_part("guardrails", _guardrails(run, targets))
    if not loads_api_servers:
        yield from checked_part("logs", _logs(run, targets))
    by_pod = send_pod and not loads_api_servers  # its line in the kernel log is for GPU nodes
    yield from checked_part("agent", (_agent_by_pod if by_pod else _agent_by_reading)(run, targets))


def checked_part(area: str, checks: Iterator[Prerequisite]) -> Iterator[Prerequisite]:
    """Yield the prerequisites of one part; a server that does not answer fails the part, and the next one goes on."""
    try:
        yield from checks
    except (RefusedError, AdapterError) as error:
        yield _failed(area, error)


def _failed(area: str, error: RefusedError | AdapterError) -> Prerequisite:
    why = error.why if isinstance(error, RefusedError) else f"{error.url}: {error.cause}"
    return Prerequisite(area, "can be asked" if isinstance(error, AdapterError) else "found", False, why, error.hint)


def _cluster(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    identity = run.kubernetes.identity()
    yield Prerequisite("kubernetes", "answers", True, f"{identity.server}, {identity.version}")
    for name, why in run.plan.dangers().items():
        fix = f"add {name} to allow_dangerous of profile {run.profile.name}, if this cluster may bear it"
        yield Prerequisite("kubernetes", f"{name} is allowed here", name in run.profile.allow_dangerous, why, fix)
    if why_not := run.plan.fault.why_not_here(run.profile.namespace, is_lab=run.profile.lab_control is not None):
        fix = f"gameday rehearse {run.plan.name} (docs/control-plane.md, On a real cluster, and on the lab only)"
        yield Prerequisite("kubernetes", f"{run.plan.fault.type} suits this cluster", False, why_not, fix)
    held = as_held(_lease(run))
    fix = lease_refusal(held).hint if held else ""
    yield Prerequisite(
        "kubernetes", "no other game-day", held is None, str(held) if held else "nobody holds the lease", fix
    )
    ledgers = stored_ledgers(run.kubernetes)
    left_open = [(one.header.run_id, entry) for one in ledgers.ledgers for entry in one.open_entries()]
    reasons = node_reasons(run.kubernetes, [entry for _, entry in left_open])
    open_runs = dict.fromkeys(run_id for (run_id, _), why in zip(left_open, reasons, strict=True) if not why)
    left = [f"open: {', '.join(open_runs)}"] if open_runs else []
    left += [f"unreadable: {', '.join(ledgers.unreadable_parts)}"] if ledgers.unreadable_parts else []
    fix = "gameday reap, which says what it cannot undo" if left else ""
    nothing = "only what keeps runs off single nodes" if left_open else "no ledger holds an open entry"
    yield Prerequisite("kubernetes", "nothing left to undo", not left, "; ".join(left) or nothing, fix)
    for (run_id, entry), why in zip(left_open, reasons, strict=True):
        if why:
            fix = (
                "run `gameday reap` when that is over; for a node that never comes back: "
                f"kubectl -n {run.profile.namespace} delete configmap {ledger_name(run_id)}; until then it is no target"
            )
            detail = f"{why}; run {run_id} left open: {entry.act}"
            yield Prerequisite("kubernetes", f"{entry.node} is clean", None, detail, fix)
    fix = f"take it out, then kubectl -n {run.profile.namespace} delete that configmap; until then it is no target"
    for node, why in ledgers.dirty_nodes.items():
        yield Prerequisite("kubernetes", f"{node} is clean", None, why, fix)


def _lease(run: ReadOnlyRun) -> Any | None:
    try:
        return read_lease(run.kubernetes, CLUSTER_LEASE)
    except AdapterError as error:
        if error.status == 404:
            return None
        raise


def _rights(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    for right in rights_for(run.plan, run.profile.namespace):
        resource, _, subresource = right.resource.partition("/")
        why_not = run.kubernetes.why_forbidden(
            right.verb, right.group, resource, subresource, right.namespace, right.name
        )
        fix = f"kubectl apply {_folder_of(run, right)}, and run as gameday-runner" if why_not else ""
        yield Prerequisite("rights", str(right), why_not is None, why_not or "granted", fix)


def _folder_of(run: ReadOnlyRun, right: Right) -> str:
    """Return kubectl's option and the manifests that grant a right."""
    if right in rights_of_the_control_plane():
        return "-k deploy/control-plane"
    if right in rights_of_probes(run.plan):
        return f"-n {right.namespace} -k deploy/probes"
    if right in rights_of_job_log(run.plan):
        return f"-n {right.namespace} -k deploy/job-log"
    return "-f deploy/rbac"


def _canaries(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that admission takes the GPU pods that a run sends through the scheduler; it sends them after the fault."""
    manifest = gpu_canary(run.record.object_name("canary"), run_id=run.id, node="any", template=run.gpu_pod_template)
    ok: bool | None = True
    detail, fix = f"PriorityClass {run.gpu_pod_template.priority_class}, image {run.gpu_pod_template.image}", ""
    try:
        run.kubernetes.create_pod(manifest, dry_run=True)
    except KubernetesError as error:
        # Any other status may come from a webhook that does not take part in dry runs.
        ok, detail = False if error.status == 403 else None, error.cause
        fix = "kubectl apply -f deploy/rbac, or set canary_priority_class in the cluster profile"
    yield Prerequisite("kubernetes", "canaries are admitted", ok, detail, fix)


def _api_canary(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that admission takes the API canary with its account, without making it."""
    longest = run.plan.guardrails.max_duration
    task = ApiCanaryTask(run_id=run.id, node="any", duration_s=longest.total_seconds())
    manifest = agent_manifest(run, run.record.object_name("api-canary"), task, longest)
    ok: bool | None = True
    detail, fix = f"account {api_account_of(task)}", ""
    try:
        run.kubernetes.create_pod(manifest, dry_run=True)
    except KubernetesError as error:
        ok, detail = False if error.status == 403 else None, error.cause
        fix = "kubectl apply -k deploy/control-plane"
    yield Prerequisite("kubernetes", "the API canary is admitted", ok, detail, fix)


def _api_servers(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Show what a load meets, as Prometheus scrapes it: seats by priority level, the servers' memory, etcd's size."""
    for metric, by, unit in (
        (NOMINAL_SEATS, "priority_level", 1.0),
        (RESIDENT_MEMORY, SERVER_LABEL, 1e6),
        (STORAGE_BYTES, SERVER_LABEL, 1e6),
    ):
        query = f"min by ({by}) ({metric.name}{{job={json.dumps(API_SERVER_JOB)}}})"
        found = sorted((sample.labels.get(by, ""), sample.value) for sample in run.servers.prometheus.query(query))
        values = ", ".join(f"{name} {value / unit:.0f}{' MB' if unit > 1 else ''}" for name, value in found)
        fix = "" if found else "let Prometheus scrape the API servers (docs/control-plane.md, What a cluster needs)"
        missing = None if metric is STORAGE_BYTES else False  # the run itself does not need it
        yield Prerequisite("prometheus", metric.name, True if found else missing, values or "no sample", fix)


def _prometheus(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    prometheus = run.servers.prometheus
    yield Prerequisite(
        "prometheus", "answers", True, f"{run.profile.prometheus.url}, {prometheus.build_info().version}"
    )
    series = RuleSeries(prometheus)
    for expected in run.plan.expect.alerts:
        rule = prometheus.rule(expected.name)
        if rule is None:
            fix = "load deploy/alerts, or change expect.alerts in the plan"
            yield Prerequisite("prometheus", f"rule {expected.name}", False, "no such alerting rule", fix)
        else:
            detail = rule.last_error or f"for {rule.hold_s:g} s, {rule.state}"
            yield Prerequisite(
                "prometheus", f"rule {expected.name}", not rule.last_error, detail, "mend the rule's expression"
            )
            yield _can_fire(run, series, expected.name)
            yield from _in_time(run, series, expected)


def _in_time(run: ReadOnlyRun, series: RuleSeries, expected: ExpectedAlert) -> Iterator[Prerequisite]:
    """Compare the plan's bound with the pace of the rule: its scrape, its evaluation and its `for`."""
    pace = pace_of(run.servers.prometheus, series, expected.name)
    if pace is None:
        return
    bound = expected.within.total_seconds()
    ok = False if bound < pace.soonest_s else True if bound >= pace.latest_s else None
    words = {
        True: "",
        None: "in time by luck alone: ",
        False: "too late even where every scrape and evaluation is lucky: ",
    }
    enough = f"within: {math.ceil(pace.latest_s)}s"
    fix = f"scrape and evaluate more often, or let the plan expect {expected.name} {enough}"
    detail = f"{words[ok]}{pace}; the plan gives {bound:g} s"
    yield Prerequisite("prometheus", f"rule {expected.name} can fire in time", ok, detail, "" if ok else fix)


def _can_fire(run: ReadOnlyRun, series: RuleSeries, rule: str) -> Prerequisite:
    queries = run.servers.prometheus.queries(rule)
    found = series.check(queries)
    details = {
        True: found.why or "every series that it needs is there",
        None: f"unknown: {found.why}",
        False: f"rule {rule} can never fire here: {found.why}",
    }
    ok, detail, fix = found.can_fire, details[found.can_fire], found.fix
    detector = _foreign_detector(run)
    if detector and series.always_needs(queries, CONTROLLER_METRICS):
        detail += f"; its series come from our node-health controller alone, and {detector} makes none of them"
    silent = [one for one in run.record.loaded.silent_sources if one.source in sources_of(rule)]
    if silent and len(silent) == len(sources_of(rule)) and ok is not False:
        ok = False if all(one.certain for one in silent) else None
        said = "cannot fire for this fault" if ok is False else "is not expected to fire for this fault"
        detail = f"its series can be here, and rule {rule} {said}: {'; '.join(one.why for one in silent)}"
        fix = "expect another alert, or another fault (docs/alerts.md, Which rule says it on your cluster)"
    if ok is not True and (others := _others_that_can_fire(run, series, rule)):
        fix = f"{fix}; of the same meaning, and able to fire here: {', '.join(others)}"
    return Prerequisite("prometheus", f"rule {rule} can fire", ok, detail, fix)


def _foreign_detector(run: ReadOnlyRun) -> str:
    """Return the detector that the plan names, or the cluster profile; empty where it is our controller."""
    named = run.record.loaded.from_detector
    detector = named.detector if named else run.profile.detector
    return "" if detector == _OUR_DETECTOR else f"detector {detector}"


def _others_that_can_fire(run: ReadOnlyRun, series: RuleSeries, rule: str) -> list[str]:
    """Return the loaded rules that mean the same as a rule, whose series are here, and whose source shows the fault."""
    prometheus, silent = run.servers.prometheus, {one.source for one in run.record.loaded.silent_sources}
    others = [other for other in others_of_meaning(rule) if other.source not in silent]
    queries = {other: prometheus.queries(other.alert) for other in others}
    return [str(other) for other, asked in queries.items() if asked and series.check(asked).can_fire]


def _alertmanager(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    alertmanager = run.servers.alertmanager
    version = alertmanager.status().version_info.version
    yield Prerequisite("alertmanager", "answers", True, f"{run.profile.alertmanager.url}, {version}")
    silences = alertmanager.silences()
    for expected in run.plan.expect.alerts:
        try:
            rule = run.servers.prometheus.rule(expected.name)
        except AdapterError:
            why = "Prometheus does not answer, so that the labels which a silence would match are unknown"
            yield Prerequisite("alertmanager", f"{expected.name} is not silenced", None, why, "see to Prometheus first")
            continue
        muting = [silence for silence in silences if rule and silence.mutes(_labels(expected, rule))]
        reasons = [f"by {silence.created_by} until {silence.ends_at:%Y-%m-%d %H:%M} UTC" for silence in muting]
        fix = "expire the silence, or run when it has ended" if muting else ""
        detail = "silenced " + "; ".join(reasons) if muting else "no silence matches it"
        yield Prerequisite("alertmanager", f"{expected.name} is not silenced", not muting, detail, fix)


def _labels(expected: ExpectedAlert, rule: AlertingRule) -> dict[str, str]:
    """Return the alert's labels without its node; a run checks the silences of its own targets."""
    return {**rule.labels, **expected.labels, "alertname": expected.name}


def _targets(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    if not targets:
        return
    names = ", ".join(target.node for target in targets)
    yield Prerequisite("targets", "opted in and fit", True, f"the next run with this seed would take {names}")
    for warning in fault_warnings(run):
        yield Prerequisite("targets", "worth knowing", True, warning)
    if run.plan.fault.runs_on is NodeRole.API_CLIENT:
        return
    label, node = run.profile.prometheus_node_label, targets[0].node
    series = f"DCGM_FI_DEV_GPU_TEMP{{{label}={json.dumps(node)}}}"
    sampled = run.servers.prometheus.query(series)
    renamed = "set prometheus_node_label in the cluster profile: hostname for dcgm-exporter from 4.6.0-4.8.3 on"
    fix = "" if sampled else f"scrape dcgm-exporter, or {renamed}"
    yield Prerequisite("targets", "metrics", bool(sampled) or None, f"{len(sampled)} series {series}", fix)


def _gpus(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    for way in gpu_access(run, targets):
        yield Prerequisite("gpus", way.name, way.ok, way.detail, way.fix)


def _workload(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that each target runs the one pod that the plan's fault needs, and that its agent is admitted."""
    for fault in filter(None, (run.plan.fault, run.plan.recover.fault_during)):
        wanted = fault.wanted_pods()
        if wanted is None or not targets:
            continue
        with run.kubernetes.explained(f"list the pods of {wanted.namespace} for {fault.type}"):
            listed = run.kubernetes.core.list_namespaced_pod(
                wanted.namespace,
                label_selector=wanted.selector,
                field_selector="status.phase=Running",
                limit=_MOST_PODS,
            )
        nodes = Counter(pod.spec.node_name for pod in listed.items)
        for target in targets:
            count, name = nodes[target.node], f"one pod of {target.node} may fail"
            detail = (
                f"{count} pods run there in {wanted.namespace} with {wanted.selector}; on all nodes {nodes.total()}"
            )
            fix = "name more of its labels in the plan's selector" if count else _HOW_TO_CONSENT
            yield Prerequisite("workload", name, count == 1, detail, "" if count == 1 else fix)
        yield _injector_admitted(run, fault, targets[0].node)


def _injector_admitted(run: ReadOnlyRun, fault: FaultParameters, node: str) -> Prerequisite:
    """Check that admission takes the injector's pod with its account, without making it."""
    task = InjectTask(
        run_id=run.id, node=node, gpu=0, fault=fault.model_dump(mode="json"), hold_s=fault.hold.total_seconds()
    )
    account = api_account_of(task)
    ok: bool | None = True
    detail, fix = f"account {account}", ""
    try:
        run.kubernetes.create_pod(
            agent_manifest(run, run.record.object_name("inject"), task, injector_deadline(fault)), dry_run=True
        )
    except KubernetesError as error:
        ok, detail = False if error.status == 403 else None, error.cause
        fix = f"create the account {account}: kubectl apply -k deploy/cuda-error/account"
    return Prerequisite("workload", "the injector is admitted", ok, detail, fix)


def _detectors(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    if run.profile.guest and targets and run.plan.fault.runs_on is NodeRole.GPU:
        why, name = guest_trouble(run.profile.guest, [target.node for target in targets]), run.profile.guest.name
        fix = "its output is in the rehearsal's folder, guests/" if why else ""
        yield Prerequisite("detectors", f"guest {name} watches the targets", not why, why, fix)
    for warning in run.record.loaded.detector_warnings:
        yield Prerequisite("detectors", f"{warning.detector} suits this plan", None, warning.what, warning.fix)


def _guardrails(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    if not targets:
        yield Prerequisite("guardrails", "all", None, "not checked without targets", "see to the targets first")
        return
    for checked in check_all(run, targets):
        found = checked.measurement
        detail = "; ".join(filter(None, (found.why, f"limit: {checked.limit}")))
        yield Prerequisite("guardrails", checked.name, found.ok, detail, "" if found.ok else found.hint, found.value)


def _logs(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    profile, loki = run.profile, run.servers.loki
    stored_labels = loki.labels()
    yield Prerequisite("logs", "answers", True, f"{profile.loki.url}, {len(stored_labels)} labels")
    wanted = {*loki.selector_labels(), *([profile.loki_node_label] if profile.loki_node_label_kind == "index" else [])}
    missing = sorted(wanted - stored_labels)
    fix = "set loki_selector and loki_node_label in the cluster profile to what the shipper writes" if missing else ""
    if profile.loki_node_label in missing:
        fix = f"for lines shipped by OTLP (Konduktor's stack), set loki_node_label_kind: structured_metadata; {fix}"
    detail = f"no line carries {', '.join(missing)}" if missing else ", ".join(sorted(wanted))
    yield Prerequisite("logs", "labels exist", not missing, detail, fix)
    if targets and not missing:
        node, now = targets[0].node, datetime.now(UTC)
        lines = loki.iterate_node_lines(node, containing="", start=now - _LOG_LOOK_BACK, end=now)
        any_line = next(iter(lines), None) is not None
        hint = "is the dmesg shipper running on the node? --send-pod writes a line"
        detail = f"lines of {node} within {_LOG_LOOK_BACK.total_seconds() / 3600:g} h: {'yes' if any_line else 'none'}"
        yield Prerequisite("logs", "kernel log of a target", any_line or None, detail, "" if any_line else hint)


def _agent_by_reading(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check image and clock without changing anything, by the node's list of images and by node_exporter's clock."""
    if not targets:
        return
    node, image = targets[0].node, run.profile.agent_image
    if asks_dcgm(run.plan):
        detail = f"{node}: only the agent can look for the engines that programs run themselves"
        yield Prerequisite("agent", _ENGINES, None, detail, "--send-pod looks")
    images = run.kubernetes.node(node).status.images or []
    pulled = any(image in (listed.names or []) for listed in images)
    found = "is in" if pulled else "is not in"
    by_pod = run.plan.fault.runs_on is NodeRole.GPU
    tells = "--send-pod pulls it" if by_pod else "the baseline refuses where it cannot start there"
    fix = "" if pulled else f"{tells}; a node lists only its largest images"
    detail = f"{image} {found} the node's list of {len(images)} images"
    yield Prerequisite("agent", "image", pulled or None, f"{node}: {detail}", fix)
    label = run.profile.prometheus_node_label
    query = (
        f"node_time_seconds{{{label}={json.dumps(node)}}} - timestamp(node_time_seconds{{{label}={json.dumps(node)}}})"
    )
    offsets = run.servers.prometheus.query(query)
    if not offsets:
        fix = "--send-pod asks the node" if by_pod else "scrape node-exporter there"
        yield Prerequisite("agent", "clock", None, f"Prometheus holds no node_time_seconds of {node}", fix)
    else:
        yield _clock(node, offsets[0].value, "node-exporter's clock against Prometheus'")


def _agent_by_pod(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Send the agent to write a harmless line into a target's kernel log, which checks image, admission and clock."""
    if not targets:
        return
    node, name = targets[0].node, run.record.object_name("doctor")
    task = mark_task(run, targets[0])
    manifest = agent_pod(
        name,
        task=task.model_dump_json(),
        role=task.role,
        run_id=run.id,
        node=node,
        profile=run.profile,
        deadline=AGENT_START_TIMEOUT,
        security=security_of(task),
    )
    with PodFollower(run.kubernetes, run.id) as pods:
        pods.wait_synced()
        sent = datetime.now(UTC)
        run.kubernetes.create_pod(manifest)
        try:
            ended = pods.wait(
                lambda: (seen := pods.seen(name)) is not None and seen.ended, AGENT_START_TIMEOUT.total_seconds()
            )
            seen_at, outcome, pod = datetime.now(UTC), termination_message(pods, name), pods.seen(name)
            prints = task.reset_gpu is not None or task.dcgm_engines
            log = run.kubernetes.pod_log(name) if outcome and prints else ""
        finally:
            uid = run.kubernetes.delete_pod(name)
            pods.wait_gone(name, uid, _POD_GONE_TIMEOUT_S)
    image = run.profile.agent_image
    if not ended or outcome is None:
        state = f"{pod.phase} {pod.reason}".strip() if pod else "never seen"
        fix = f"can {node} pull {image}? kubectl -n {run.profile.namespace} get events"
        yield Prerequisite("agent", "image", False, f"pod {name} on {node} left no message: {state}", fix)
        return
    yield Prerequisite(
        "agent", "image", outcome.ok, outcome.error or f"{image} ran on {node}", "see the agent's own error"
    )
    if task.reset_gpu is not None and outcome.ok:
        users = gpu_users_left(log, uids_before_reset(run, node))
        detail = f"open in: {'; '.join(users)}" if users else "no process that a drain leaves has it open"
        fix = GPU_RESET_HINT if users else ""
        yield Prerequisite("agent", f"GPU {task.reset_gpu} can be reset", not users, detail, fix)
    if task.dcgm_engines and outcome.ok:
        yield _engines(node, engines_in(log))
    if outcome.written_at:
        early, late = (sent - outcome.written_at).total_seconds(), (outcome.written_at - seen_at).total_seconds()
        ahead = max(late, 0.0) - max(early, 0.0)
        span = (seen_at - sent).total_seconds()
        yield _clock(node, ahead, f"the agent's clock against ours, known to {span:.1f} s")


def _engines(node: str, seen: DcgmEnginesNote | None) -> Prerequisite:
    """Return whether all of the node's readers of DCGM can see a fault in its host engine."""
    if seen is None:
        return Prerequisite(
            "agent", _ENGINES, None, f"{node}: the agent printed nothing of the engines", "run it once more"
        )
    if seen.blind:
        return Prerequisite("agent", _ENGINES, False, f"{node}: {'; '.join(seen.blind)}", ENGINES_HINT)
    doubts = [f"not {one}" for one in seen.others] + [f"cannot see {one}" for one in seen.unseen]
    detail = "; ".join(doubts) or "no process has a DCGM host engine beside the node's"
    return Prerequisite(
        "agent", _ENGINES, None if doubts else True, f"{node}: {detail}", ENGINES_HINT if doubts else ""
    )


def _clock(node: str, ahead_s: float, how: str) -> Prerequisite:
    ok = abs(ahead_s) <= _MOST_CLOCK_OFFSET_S
    offset = f"{abs(ahead_s):.2f} s {'ahead' if ahead_s > 0 else 'behind'}" if ahead_s else "no offset seen"
    fix = "" if ok else f"synchronise the clocks of {node} and of this machine (chrony, NTP): chains are timed by both"
    return Prerequisite("agent", "clock", ok, node, fix, f"{offset} ({how})")
