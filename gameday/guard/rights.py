"""The rights of a game-day's account, as data: `gameday doctor` checks them, deploy/rbac/runner.yaml grants them.

A test compares the two, and the lab's audit log is compared with both.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gameday.guard.preflight import preflight_modules
from gameday.plan.models import Plan
from gameday.remediations.registry import remediation_for
from gameday.run.drain import moves_pods


@dataclass(frozen=True)
class Right:
    """A verb on a resource."""

    verb: str
    resource: str
    """The resource with its subresource, e.g. `pods/log`."""
    namespace: str = ""
    """The namespace; empty: the whole cluster."""
    group: str = ""
    """The API group; empty: the core group."""
    name: str = ""
    """The object's name; empty: every object."""
    granted_by: str = field(default="-f deploy/rbac", compare=False)
    """The options of `kubectl apply` with the manifests that grant it."""

    def __str__(self) -> str:
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        where = f" in {self.namespace}" if self.namespace else ""
        return f"{self.verb} {resource}{f' {self.name}' if self.name else ''}{where}"


def rights_for(plan: Plan, namespace: str) -> tuple[Right, ...]:
    """Return every right that a run of this plan uses, in the order of use."""
    return tuple(dict.fromkeys((*_always(namespace), *_of_plan(plan, namespace))))


def rights_for_every_plan(namespace: str) -> tuple[Right, ...]:
    """Return the rights of an account that may run any plan."""
    return (*_always(namespace), *_MOVES_PODS, *_DRAINS, *_DEVICES, *_job(namespace))


def _always(namespace: str) -> Iterator[Right]:
    yield Right("create", "selfsubjectaccessreviews", group="authorization.k8s.io")
    yield Right("get", "namespaces", name="kube-system")
    for verb in ("get", "list", "watch", "patch"):
        yield Right(verb, "nodes")
    for verb in ("list", "watch"):
        yield Right(verb, "pods")
        yield Right(verb, "events", "default")
    for verb in ("create", "get", "list", "patch", "delete"):
        yield Right(verb, "leases", namespace, "coordination.k8s.io")
    for verb in ("create", "list", "patch", "delete"):
        yield Right(verb, "configmaps", namespace)
    for verb in ("create", "list", "watch", "delete"):
        yield Right(verb, "pods", namespace)
    yield Right("get", "pods/log", namespace)


_MOVES_PODS = (Right("list", "poddisruptionbudgets", group="policy"),)
_DRAINS = (Right("create", "pods/eviction"),)
_DEVICES = (
    Right("list", "resourceslices", group="resource.k8s.io"),
    Right("watch", "resourceslices", group="resource.k8s.io"),
    Right("list", "resourceclaims", group="resource.k8s.io"),
)


def rights_of_probes(plan: Plan) -> tuple[Right, ...]:
    """Return the rights for a plan's commands in pods; deploy/probes grants them, one namespace at a time.

    A websocket's request is a GET, for which API servers require `get`, and newer ones also `create` (docs/sources.md,
    Commands in pods).
    """
    spaces = dict.fromkeys(probe.exec.namespace for probe in plan.expect.probes if probe.exec)
    return tuple(
        Right(verb, "pods/exec", space, granted_by=f"-n {space} -k deploy/probes")
        for space in spaces
        for verb in ("get", "create")
    )


def rights_of_job_log(plan: Plan) -> tuple[Right, ...]:
    """Return the rights to read the steps of a plan's job; deploy/job-log grants them in the job's namespace."""
    job = plan.expect.job
    by = f"-n {job.namespace} -k deploy/job-log" if job else ""
    return (Right("get", "pods/log", job.namespace, granted_by=by),) if job else ()


def _job(namespace: str) -> tuple[Right, ...]:
    return tuple(Right(verb, "jobs", namespace, "batch") for verb in ("create", "delete"))


def _of_plan(plan: Plan, namespace: str) -> Iterator[Right]:
    if moves_pods(plan):
        yield from _MOVES_PODS
    if remediation_for(plan.recover.remediation).drains_node:
        yield from _DRAINS
    if plan.expect.device_taints:
        yield from _DEVICES
    for sign in plan.recover.hops.signs():
        if sign.resource:
            group, _, _ = sign.resource.api_version.rpartition("/")
            yield Right("list", sign.resource.plural, group=group)
            yield Right("watch", sign.resource.plural, group=group)
    has_job = any(probe.job for probe in plan.expect.probes)
    if has_job or (plan.expect.expects_quarantine and not plan.recover.is_hands_off):
        yield from _job(namespace)
    yield from rights_of_probes(plan)
    yield from rights_of_job_log(plan)
    for module in preflight_modules("rights"):
        yield from module.rights(plan, namespace)
