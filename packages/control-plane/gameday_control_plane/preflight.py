"""Rights, prerequisites and planned changes of a game-day that loads the API servers."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gameday.guard.doctor.admission import after_dry_run
from gameday.guard.doctor.prerequisite import Prerequisite, checked_part
from gameday.guard.preview import PlannedChange, agent_change
from gameday.guard.rights import Right
from gameday.observe.api_server_metrics import (
    API_SERVER_JOB,
    NOMINAL_SEATS,
    RESIDENT_MEMORY,
    SERVER_LABEL,
    STORAGE_BYTES,
)
from gameday.plan.models import Plan
from gameday.run.agents import agent_manifest
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole
from gameday.values.results import Step
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.expect.control_plane import ControlPlane
from gameday_control_plane.flow_control_objects import Shares, level_names
from gameday_control_plane.settings import ControlPlaneSettings, FlowControl
from gameday_control_plane.tasks import ApiCanaryTask


def _api_servers(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Yield the limits that a load meets: seats by priority level, the servers' memory (MB), and etcd's size (MB).

    Raises:
        AdapterError: Prometheus does not answer.
    """
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


def _api_canary_admitted(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that admission takes the API canary with its account."""
    longest = run.plan.guardrails.max_duration
    task = ApiCanaryTask(run_id=run.id, node="any", duration_s=longest.total_seconds())
    manifest = agent_manifest(run, run.record.object_name("api-canary"), task, longest)
    account, fix = f"account {task.api_account}", "kubectl apply -k deploy/control-plane"
    yield after_dry_run(run, manifest, Prerequisite("kubernetes", "the API canary is admitted", True, account, fix))


_GRANTED_BY = "-k deploy/control-plane"
_FLOW_CONTROL = tuple(
    Right(verb, resource, group="flowcontrol.apiserver.k8s.io", granted_by=_GRANTED_BY)
    for resource, verbs in {
        "prioritylevelconfigurations": ("list", "create", "get", "delete"),
        "flowschemas": ("create", "get", "delete"),
    }.items()
    for verb in verbs
)
_API_CANARY = (Right("delete", "leases", NAMESPACE, "coordination.k8s.io", granted_by=_GRANTED_BY),)


def rights_of_the_control_plane() -> tuple[Right, ...]:
    """Return the additional rights for plans of the control plane; deploy/control-plane grants them."""
    return (*_FLOW_CONTROL, *_API_CANARY)


def rights(plan: Plan, namespace: str) -> Iterator[Right]:
    """Yield the rights that a plan needs for its flow control and its API canary."""
    if ControlPlaneSettings.of(plan.settings).flow_control:
        yield from _FLOW_CONTROL
    if ControlPlane.of(plan.expect).api_canary:
        yield from _API_CANARY


def prerequisites(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Yield what a load on the API servers needs; nothing for another plan. Raises AdapterError."""
    if run.plan.fault.runs_on is NodeRole.API_CLIENT:
        yield from checked_part("kubernetes", _api_canary_admitted(run))
        yield from checked_part("prometheus", _api_servers(run))


def planned_changes(run: ReadOnlyRun, targets: Targets) -> Iterator[PlannedChange]:
    """Yield the limiter's objects, and the API canary of each target from which the API servers are loaded."""
    if wanted := ControlPlaneSettings.of(run.plan.settings).flow_control:
        yield from _flow_control(wanted)
    if run.plan.fault.runs_on is NodeRole.API_CLIENT:
        longest = run.plan.guardrails.max_duration
        why = "the API canary: small requests of an ordinary client, to the end of the run"
        for target in targets:
            task = ApiCanaryTask(run_id=run.id, node=target.node, duration_s=longest.total_seconds())
            yield agent_change(run, Step.BASELINE, "api-canary", target, task, longest, why)


def _flow_control(wanted: FlowControl) -> Iterator[PlannedChange]:
    """Yield the objects of the limiter; their shares depend on the levels that the run finds."""
    why = f"a level of exactly {wanted.seats} seats; where one share is worth more, a second one beside it, {{}}"
    spare = f"{level_names(wanted, Shares(own=1, spare=1))[-1]}, that takes no requests and lends all it has"
    yield PlannedChange(Step.INJECT, "create", f"prioritylevelconfiguration/{wanted.name}", why.format(spare))
    why = f"sends {', '.join(wanted.verbs)} of {', '.join(wanted.resources)} in {', '.join(wanted.namespaces)} there"
    yield PlannedChange(Step.INJECT, "create", f"flowschema/{wanted.name}", why)
