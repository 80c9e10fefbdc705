"""Options for a virtual cluster, the same for every command that starts one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gameday.values.nodes import MAX_NODES

DEFAULT_DETECTOR = "default"

Nodes = Annotated[int, typer.Option(min=1, max=MAX_NODES, help="Virtual GPU nodes.")]
Gpus = Annotated[int, typer.Option(min=1, max=16, help="GPUs per virtual node.")]
Watcher = Annotated[
    str | None,
    typer.Option(
        "--detector",
        show_default=DEFAULT_DETECTOR,
        help="Who watches: default or conservative (our policies), konduktor (as released), off; or a detector "
        "profile's name or file (`gameday detectors`), of which a stand-in does what the profile says.",
    ),
]
_CLUSTER = typer.Option(
    "--cluster",
    help="Control plane: embedded (a stand-in, starts in a second), lab (Kubernetes' own; see `make lab`).",
)
Cluster = Annotated[str, _CLUSTER]
PlansCluster = Annotated[str | None, _CLUSTER]
"""The same if a plan may choose (`rehearsal.cluster`)."""
Repair = Annotated[
    str,
    typer.Option(
        "--repair",
        help="on: the detector's stack drains, repairs, validates and returns quarantined nodes; off: nobody does; "
        "auto: on for a plan with recover.by: cluster.",
    ),
]
GuestOption = Annotated[
    str | None,
    typer.Option(
        "--guest",
        metavar="FILE|COMMAND",
        help="A real detector watches in place of ours: a guest's file (.yaml), or its command, like "
        "'./detector --log {kernel_log} --node {node}' (docs/rehearsal.md, A guest).",
    ),
]
KernelLogs = Annotated[
    Path | None,
    typer.Option(
        "--kernel-logs",
        metavar="DIR",
        help="Write each node's kernel log as DIR/NODE/kmsg (a pipe that one program reads like /dev/kmsg) and "
        "DIR/NODE/kern.log, and its GPUs as DIR/NODE/nvml.yaml, for NVIDIA's mock NVML.",
    ),
]
Rehearse = Annotated[bool, typer.Option("--rehearse", help="Start an embedded cluster, in place of a real one.")]
KeepRehearsed = Annotated[
    bool, typer.Option("--keep/--no-keep", help="With --rehearse: keep the cluster's folder with its logs.")
]
Folder = Annotated[Path, typer.Option(help="Folder for the cluster's kubeconfig, profile and logs.")]
Exporter = Annotated[
    str | None,
    typer.Option(
        "--exporter",
        help="The release of dcgm-exporter that the metrics are written like: 3.3.5, 4.4.2, 4.5.3 or newer "
        "(docs/alerts.md, The common Xid rule that never fires). None: 4.4.2, or the first after it that exports "
        "every field that the plan injects.",
    ),
]
