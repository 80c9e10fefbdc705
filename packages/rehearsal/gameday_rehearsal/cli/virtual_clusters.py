"""Virtual clusters for the commands of other packages: the functions of gameday's `VirtualClusters`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gameday_rehearsal.cli.choices import detector_of, guest_of, hold_outs, is_repaired
from gameday_rehearsal.cli.embedded_cluster import Embedded, cluster_ended, prefect_of, running_cluster
from gameday_rehearsal.cli.embedded_cluster import embedded as start_embedded
from gameday_rehearsal.cli.gpu_stack_options import exporter_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from gameday.errors import CommandError
    from gameday.plan.fault import FaultParameters
    from gameday_rehearsal.guests.load import LoadedGuest
    from gameday_rehearsal.watch import Watch

__all__ = ["embedded", "exporter_for", "guest_of", "kept", "on_model_node"]


@contextmanager
def embedded(
    out: Console,
    nodes: int,
    gpus: int,
    detector: str,
    cluster: str,
    *,
    keep: bool,
    flow: str,
    spare: int = 0,
    slow: int = 0,
    seed: int = 1,
    exporter: str,
    guest: LoadedGuest | None = None,
) -> Iterator[Embedded]:
    """Start a cluster for the block."""
    from gameday_rehearsal.nodes.exporter_release import ExporterRelease
    from gameday_rehearsal.slow_gpus import choose_slow

    made_slow = choose_slow(slow, nodes, gpus, seed)
    with start_embedded(
        out,
        nodes,
        gpus,
        detector,
        cluster,
        keep=keep,
        flow=flow,
        spare=spare,
        slow_gpus=made_slow,
        exporter=ExporterRelease(exporter),
        guest=guest,
    ) as here:
        yield here


@dataclass(frozen=True)
class Kept:
    """A cluster that runs until somebody ends it."""

    profile: Path
    prefect_password_file: Path
    watch: Watch

    @property
    def error(self) -> CommandError | None:
        """The reason for which the cluster has ended by itself; None while it runs."""
        return cluster_ended(self.watch.error) if self.watch.error else None


@contextmanager
def kept(out: Console, folder: Path, nodes: int, gpus: int, detector: str, repair: str) -> Iterator[Kept]:
    """Start a cluster in this folder for the block, with Prefect's settings, on Prefect's usual port."""
    from gameday.cli.prefect_client import set_defaults
    from gameday.processes.ports import PREFECT_PORT
    from gameday_rehearsal.blueprint import Blueprint, Size
    from gameday_rehearsal.cluster import RehearsalCluster

    watcher, fake_detector = detector_of(detector)
    repaired = is_repaired(repair)
    # A spare for each node: a season breaks several at once, and evicted work has to find room.
    size = Size(nodes, gpus, spare=nodes // 2, hold_outs=hold_outs(nodes, repair=repaired), client_nodes=1)
    cluster = RehearsalCluster(
        Blueprint(folder, size, watcher, fake_detector=fake_detector, repair=repaired, prefect_port=PREFECT_PORT)
    )
    with running_cluster(cluster, out) as watch:
        set_defaults()
        with prefect_of(cluster):
            yield Kept(cluster.profile, cluster.prefect_password_file, watch)


def on_model_node(fault: FaultParameters, gpu: int, gpus: int) -> Sequence[str]:
    """Return what the fault's injector does on a model node with this many GPUs."""
    from gameday_rehearsal.nodes.in_process import play

    return play(fault, gpu, gpus)
