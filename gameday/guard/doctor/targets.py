"""The targets that a run would choose: their metrics, and the ways to their GPUs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.gpu_access import gpu_access
from gameday.guard.preview import fault_warnings
from gameday.run.run import ReadOnlyRun
from gameday.run.targets import Targets
from gameday.values.nodes import NodeRole


def check_targets(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Yield the targets, remarks on the fault there, and whether their GPUs' metrics are scraped.

    Raises:
        AdapterError: Prometheus does not answer.
    """
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


def check_gpus(run: ReadOnlyRun, targets: Targets) -> Iterator[Prerequisite]:
    """Check that our pods can reach the targets' driver and GPUs.

    Raises:
        KubernetesError: The API server does not answer, or refuses a dry run for another reason.
    """
    for way in gpu_access(run, targets):
        yield Prerequisite("gpus", way.name, way.ok, way.detail, way.fix)
