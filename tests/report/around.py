"""The surroundings of a built run: people's notes, the pods the run watched, and where its numbers come from."""

from __future__ import annotations

import pandas as pd

from gameday.history.events import FrameRead, GpuIdentity, GpusIdentified, KubernetesEventSeen, OwnCost
from gameday.history.frames import Frames, conform
from tests.report import run_builder as build

NOTES = """\
summary: Ada took the page, Bob stood at the rack.
impact: 8 GPUs for 40 s
people: {owner: ada, observer: [carol, dan]}
acknowledged: {at: 2026-03-03T09:00:20Z, who: ada}
first_action: {at: 2026-03-03T09:00:25Z, who: ada, what: looked at dmesg}
runbook:
  link: https://runbooks.example/xid-79
  steps:
    - {step: read dmesg, followed: true}
    - {step: drain the node, followed: false, why: the taint had done it}
    - {step: call the vendor}
timeline:
  - {at: 2026-03-03T09:00:22Z, who: bob, what: the fans spun up}
went_well: [the page came at once]
went_wrong: [the runbook's link was dead]
lucky: [it was a Tuesday]
surprises: [the reboot took 8 s where we thought of minutes]
contributors: [a hot aisle]
mitigators: [the canary]
difficulties: [two dashboards disagreed]
actions:
  - {id: A1, what: mend the link, type: process, severity: low, owner: ada, ticket: "https://tickets.example/1",
     due: 2026-03-01, retest: 2026-03-10}
"""


def events() -> list[build.Timed]:
    gpus = tuple(
        GpuIdentity(gpu=str(n), uuid=f"GPU-0000-{n}", model="NVIDIA H100 80GB HBM3", driver="570.86.15")
        for n in range(8)
    )
    query = '{__name__=~"DCGM_FI_DEV_GPU_TEMP",Hostname=~"gpu-node-03"}'
    read = FrameRead(
        frame="metrics", server="Prometheus", query=query, start=build.at(-60), end=build.at(46), step_s=0.5, rows=5488
    )
    fell = KubernetesEventSeen(
        node=build.NODE,
        reason="GPUXid79",
        type="Warning",
        source="gameday-health",
        message="GPU 5 (GPU-0000-5) at PCI 0000:c1:00 reports Xid 79: GPU has fallen off the bus. The node is drained.",
        at=build.at(build.FAULT_AT + 0.97),
    )
    return [
        build.Timed(46.15, fell),
        build.Timed(46.2, GpusIdentified(node=build.NODE, gpus=gpus)),
        build.Timed(46.25, read),
        build.Timed(46.35, OwnCost(cpu_s=2.4, peak_rss_bytes=180_000_000)),
    ]


def frames() -> Frames:
    """The builder's, and a training pod that the reboot ends beside one that waits for its image."""
    rows = [
        (-9.0, "training", "train-llm-0", "Running", 4),
        (-9.0, "logging", "collector-x", "Running", 0),
        (1.0, "training", "late-0", "Pending", 2),
        (6.0, "training", "late-0", "Running", 2),
        (13.0, "training", "train-llm-0", "Failed", 4),
        (13.1, "training", "train-llm-0", "Deleted", 4),
    ]
    made = build.frames()
    made.pods = conform(
        "pods",
        [
            {
                "time": pd.Timestamp(build.at(build.FAULT_AT + t)),
                "namespace": namespace,
                "pod": pod,
                "node": build.NODE,
                "phase": phase,
                "gpus": gpus,
            }
            for t, namespace, pod, phase, gpus in rows
        ],
    )
    return made
