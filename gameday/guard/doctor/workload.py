"""The pods of the cluster's users that a plan's fault needs on its targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gameday.guard.doctor.admission import check_injector
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets

_MOST_PODS = 500
_HOW_TO_CONSENT = (
    "put the label and the library into the pods' template (docs/cuda-errors.md), or choose a node that runs such a pod"
)


def check_workload(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that each target runs the one pod that the plan's fault needs, and that its injector is admitted.

    Raises:
        KubernetesError: The API server does not list the pods.
    """
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
        yield check_injector(run, fault, targets[0].node)
