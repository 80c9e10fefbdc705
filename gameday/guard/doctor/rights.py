"""The rights that a run uses, each checked by an access review."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.rights import rights_for
from gameday.run.run import ReadOnlyRun


def check_rights(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that the run's account has each right.

    Raises:
        KubernetesError: The API server does not answer, or refuses access reviews.
    """
    for right in rights_for(run.plan, run.profile.namespace):
        resource, _, subresource = right.resource.partition("/")
        why_not = run.kubernetes.why_forbidden(
            right.verb, right.group, resource, subresource, right.namespace, right.name
        )
        fix = f"kubectl apply {right.granted_by}, and run as gameday-runner" if why_not else ""
        yield Prerequisite("rights", str(right), why_not is None, why_not or "granted", fix)
