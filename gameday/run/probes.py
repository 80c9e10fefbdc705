"""The order for a probe's job, which tasks/moments/probes.py sends and the dry run shows."""

from __future__ import annotations

from collections.abc import Sequence

from gameday.cluster.manifests import GpuPodTemplate, ProbeJob
from gameday.expect.probes import JobProbe


def probe_order(job: JobProbe, nodes: Sequence[str], template: GpuPodTemplate) -> ProbeJob:
    """Return the order for a plan's job on these targets; without its own image it uses the canaries'."""
    return ProbeJob(
        command=job.command,
        image=job.image or template.image,
        gpus=job.gpus,
        node=nodes[0] if job.where == "target" else None,
        ends_within=job.ends_within,
    )
