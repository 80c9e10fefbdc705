"""A virtual cluster that runs as long as a command: its start, an early end if it cannot go on, and its logs."""

from __future__ import annotations

import atexit
import os
import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.cli.temporary import temporary_folder
from gameday.errors import CommandError, StartError
from gameday.exit_codes import ExitCode
from gameday_rehearsal.cli.choices import control_plane_of, detector_of, hold_outs
from gameday_rehearsal.cli.gpu_stack_options import NO_GPU_OPERATOR, exporter_for, operator_of
from gameday_rehearsal.cli.rehearsal_checks import check_memory

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.errors import RehearsalError
    from gameday_rehearsal.blueprint import MachineUse
    from gameday_rehearsal.cluster import RehearsalCluster
    from gameday_rehearsal.guests.load import LoadedGuest
    from gameday_rehearsal.lab.settings import LabSettings
    from gameday_rehearsal.nodes.exporter_release import ExporterRelease
    from gameday_rehearsal.slow_gpus import SlowGpu
    from gameday_rehearsal.watch import Watch

_LEAVES_NO_LOGS = (ExitCode.PASSED, ExitCode.FAILED, ExitCode.ABORTED)
"""Exit codes after which the cluster's own logs are deleted. After any other code they are the evidence."""


@dataclass
class Embedded:
    """A cluster that lasts for one command."""

    cluster: RehearsalCluster
    slow_gpus: tuple[SlowGpu, ...] = ()
    code: ExitCode = ExitCode.INTERNAL
    """The command's exit code, once it is known."""

    @property
    def profile(self) -> Path:
        """The cluster's profile."""
        return self.cluster.profile

    @property
    def made_slow(self) -> list[str]:
        """The GPUs that were made slow, as a person reads them."""
        return [f"{one.node} GPU {one.gpu} ({one.share:.0%} of its rate)" for one in self.slow_gpus]

    def end_with(self, code: ExitCode) -> ExitCode:
        """Take the command's exit code and return it."""
        self.code = code
        return code


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
    repair: bool = False,
    offender: bool = False,
    weakly_cooled: bool = False,
    slow_gpus: tuple[SlowGpu, ...] = (),
    gpu_classes: bool = False,
    client_nodes: int = 0,
    lab: LabSettings | None = None,
    exporter: ExporterRelease,
    gpu_operator: str = NO_GPU_OPERATOR,
    kernel_logs: Path | None = None,
    guest: LoadedGuest | None = None,
    kube_state_metrics: bool | None = None,
    this_machine: MachineUse | None = None,
) -> Iterator[Embedded]:
    """Start a cluster for the block, with Prefect's settings and the flow's module; delete its logs if all went well.

    `lab` is for the cluster `lab`; None: stock. Raises CommandError for a choice that does not exist, and StartError if
    the cluster does not start.
    """
    from gameday.cluster.virtual_cluster import ENDED
    from gameday_rehearsal.blueprint import Blueprint, Size
    from gameday_rehearsal.cluster import RehearsalCluster
    from gameday_rehearsal.lab.settings import STOCK

    (watcher, fake_detector), control_plane = detector_of(detector, guest), control_plane_of(cluster)
    check_memory(nodes)
    if exporter is not exporter_for(None, []):
        release = "the newest release" if exporter == "newer" else f"release {exporter}"
        out.print(f"dcgm-exporter's metrics are those of {release} (docs/rehearsal.md, Where the stand-ins differ)")
    operator = operator_of(gpu_operator)
    folder = temporary_folder("gameday-rehearsal-")
    size = Size(
        nodes,
        gpus,
        spare,
        hold_outs(nodes, repair=repair),
        client_nodes,
        offender,
        weakly_cooled,
        slow_gpus,
        gpu_classes,
    )
    try:
        running = RehearsalCluster(
            Blueprint(
                folder,
                size,
                watcher,
                control_plane=control_plane,
                lab=lab or STOCK,
                fake_detector=fake_detector,
                repair=repair,
                exporter=exporter,
                gpu_operator=operator,
                kernel_logs=kernel_logs,
                guest=guest,
                kube_state_metrics=kube_state_metrics,
                this_machine=this_machine,
            )
        )
    except StartError:
        folder.rmdir()
        raise
    here = Embedded(running, slow_gpus)
    try:
        _set_prefect(folder / "prefect-client", here.cluster.prefect_client)
        # Prefect and pandas load for seconds, as the cluster does, so load them meanwhile.
        threading.Thread(target=_load, args=(flow,), name="import", daemon=True).start()
        with running_cluster(here.cluster, out), prefect_of(here.cluster):
            yield here
    except KeyboardInterrupt:
        here.end_with(ExitCode.ABORTED)
        raise
    except CommandError as error:
        here.end_with(error.code)
        raise
    finally:
        if keep or here.code not in _LEAVES_NO_LOGS or (folder / ENDED).exists():
            out.print(f"the cluster's logs: {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            # Prefect makes its home while it is imported, which after a Ctrl-C may be now.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)


@contextmanager
def running_cluster(cluster: RehearsalCluster, out: Console) -> Iterator[Watch]:
    """Run the cluster for the block. Ctrl-C and SIGTERM break off its start; nothing breaks off its end.

    Yields the watch that ends the cluster early if it cannot go on. Raises CommandError if that happens at the start.
    """
    from gameday_rehearsal.signals import broken_off_by_signals, ignore_signals
    from gameday_rehearsal.watch import Watch

    out.print(f"starting {cluster.description}", style="dim")
    with broken_off_by_signals():
        try:
            with Watch(cluster.check, cluster.kill) as watch:
                try:
                    with out.status("processes start"):
                        cluster.start()
                except StartError:
                    if watch.error:
                        raise cluster_ended(watch.error) from None
                    raise
                yield watch
        finally:
            ignore_signals()
            cluster.end()


@contextmanager
def prefect_of(cluster: RehearsalCluster) -> Iterator[None]:
    """Use the cluster's Prefect server, on another port than the chosen one if that was taken meanwhile."""
    from gameday.cli.prefect_client import client_of, own_server

    with client_of(cluster.prefect_client), own_server(cluster.child("prefect")):
        yield


def cluster_ended(error: RehearsalError) -> CommandError:
    """Return the error for a command that lost its cluster for this reason."""
    from gameday.errors import MemoryShortError

    code = ExitCode.ABORTED if isinstance(error, MemoryShortError) else ExitCode.INTERNAL
    return CommandError(f"{error}; the rest is ended", code)


def _load(module: str) -> None:
    with suppress(Exception):  # the code that needs it imports it again, and gets the error
        import_module(module)


def _set_prefect(home: Path, client: Mapping[str, str]) -> None:
    from gameday.processes.prefect_server import prefect_environment

    home.mkdir(parents=True, exist_ok=True)
    os.environ.update({**prefect_environment(home), **client})
