"""The packages that a scheduled reaper has: without the one that made a change it cannot undo it.

Each scheduled reaper says in a Lease of its own name which packages it can undo for, and a run that uses another one is
refused. A person's `gameday reap` says nothing, because nobody can rely on its coming.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from gameday import __version__
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.lease import leases_path, read_lease
from gameday.documents.fields import DocumentModel
from gameday.errors import RefusedError
from gameday.expect.registry import found_expectations
from gameday.faults.registry import found_faults
from gameday.plan.models import Plan
from gameday.plan.settings import found_settings
from gameday.plugins import Group, broken_parts, installed_packages
from gameday.text import printable

REAPER_LEASE = "gameday-reaper"
Reaper = Literal["cronjob", "flow"]
"""The scheduled reapers: that of deploy/reaper, and Prefect's deployment."""
_ANNOTATION = "gameday.dev/packages-of-"
"""The annotation's name, without the reaper's."""
_UNDOING = (Group.FAULTS, Group.UNDOS, Group.AGENT_TASKS)
_NOT_OF_A_RUN = (Group.COMMANDS, Group.DOCUMENTS, Group.VIRTUAL_CLUSTERS, Group.PLANS)
_VERSIONS: TypeAdapter[dict[str, str]] = TypeAdapter(dict[str, str])
_MEND: Mapping[str, str] = {
    "cronjob": "give the CronJob gameday-reaper an image with it, and let it come: "
    "kubectl -n {namespace} create job --from=cronjob/gameday-reaper gameday-reaper-now",
    "flow": "install it where the deployment `reaper/reaper (undoes only)` runs, and let it come: "
    "prefect deployment run 'reaper/reaper (undoes only)'",
}


def announce_packages(kubernetes: Kubernetes, reaper: Reaper) -> None:
    """Say in the cluster which packages a scheduled reaper has, if that is not there already.

    A package that cannot be loaded here is left out.

    Raises:
        KubernetesError: The Lease cannot be read or written.
    """
    whole = {name: version for name, version in installed_packages().items() if not broken_parts(name, _UNDOING)}
    said = {_ANNOTATION + reaper: json.dumps({"gpu-gameday": __version__} | whole, sort_keys=True)}
    found, act, path = _annotations(kubernetes), f"write lease {REAPER_LEASE}", leases_path(kubernetes.json)
    if found is None:
        metadata = {"name": REAPER_LEASE, "annotations": said}
        kubernetes.json.request("POST", path, {"metadata": metadata, "spec": {}}, act=act)
    elif not found.items() >= said.items():
        kubernetes.json.request("PATCH", f"{path}/{REAPER_LEASE}", {"metadata": {"annotations": said}}, act=act)


def check_packages(plan: Plan, kubernetes: Kubernetes) -> None:
    """Refuse a plan of a package that is only half here, or that a scheduled reaper lacks.

    A plan of the core alone costs no request. Where no reaper has said what it has, nothing is refused for it.

    Raises:
        RefusedError: A run of the plan could not be undone.
        KubernetesError: The reaper's Lease cannot be read.
    """
    used = set(_packages_of(plan))
    for package in sorted(used):
        if broken := broken_parts(package, [group for group in Group if group not in _NOT_OF_A_RUN]):
            why = "; ".join(f"{one.group} {one.name}: {one.why}" for one in broken)
            raise RefusedError(
                f"the plan uses the package {package}, and a part of it cannot be loaded here: {why}",
                f"install what it misses, or a version of {package} that works",
            )
    if not used or kubernetes.profile.rehearsal:  # a rehearsal has no scheduled reaper
        return
    for reaper, packages in _announced(kubernetes):
        if lacking := sorted(used - packages.keys()):
            has = ", ".join(f"{name} {version}" for name, version in packages.items())
            raise RefusedError(
                f"the plan uses {', '.join(lacking)}, which the scheduled reaper lacks ({reaper}: {printable(has)}): "
                "if this process died, nobody would undo its changes",
                f"{_MEND[reaper].format(namespace=kubernetes.profile.namespace)}; where no such reaper comes any more: "
                f"{_forget(kubernetes)}",
            )


def _announced(kubernetes: Kubernetes) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield each reaper that has said what it has, with its packages. Raises RefusedError and KubernetesError."""
    annotations = _annotations(kubernetes) or {}
    for reaper in _MEND:
        if (said := annotations.get(_ANNOTATION + reaper)) is not None:
            try:
                yield reaper, _VERSIONS.validate_json(said)
            except ValidationError:
                raise RefusedError(
                    f"lease {REAPER_LEASE} does not say which packages the scheduled reaper has: its annotation "
                    f"{_ANNOTATION}{reaper} cannot be read",
                    f"delete it, and the reaper says it again when it comes: {_forget(kubernetes)}",
                ) from None


def _forget(kubernetes: Kubernetes) -> str:
    return f"kubectl -n {kubernetes.profile.namespace} delete lease {REAPER_LEASE}"


def _annotations(kubernetes: Kubernetes) -> dict[str, str] | None:
    """Return the annotations of the reaper's Lease; None if there is none. Raises KubernetesError."""
    found = read_lease(kubernetes.json, REAPER_LEASE)
    return found and (found["metadata"].get("annotations") or {})


def _packages_of(plan: Plan) -> Iterator[str]:
    """Yield the names of the packages that a plan's faults, expectations and settings come from."""
    during = plan.recover.fault_during
    types = plan.fault.types() | (during.types() if during else frozenset())
    places = (
        (found_faults().packages, types),
        (found_expectations().packages, _given(plan.expect)),
        (found_settings().packages, _given(plan.settings)),
    )
    for packages, parts in places:
        yield from (packages[part].partition(" ")[0] for part in parts if part in packages)


def _given(document: DocumentModel) -> list[str]:
    """Return the keys with another value than the default."""
    fields: dict[str, Any] = type(document).model_fields
    return [key for key, one in fields.items() if getattr(document, key) != one.get_default(call_default_factory=True)]
