"""The door to virtual clusters: what a command with `--rehearse` asks of the package that starts them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.plugins import Group, find

if TYPE_CHECKING:
    from types import ModuleType

    from rich.console import Console

    from gameday.plan.fault import FaultParameters
    from gameday.plan.models import Plan


class VirtualCluster(Protocol):
    """A virtual cluster that runs as long as a command."""

    @property
    def profile(self) -> Path:
        """The cluster's profile."""

    @property
    def made_slow(self) -> Sequence[str]:
        """The GPUs that were made slow, as a person reads them."""

    def end_with(self, code: ExitCode) -> ExitCode:
        """Take the command's exit code and return it. After some, the cluster's logs stay."""


class KeptCluster(Protocol):
    """A virtual cluster that runs until somebody ends it."""

    @property
    def profile(self) -> Path:
        """The cluster's profile."""

    @property
    def prefect_password_file(self) -> Path:
        """The file with the password of its Prefect server."""

    @property
    def error(self) -> CommandError | None:
        """The reason for which the cluster has ended by itself; None while it runs."""


class VirtualClusters(Protocol):
    """The functions of a module of the group `gameday.virtual_clusters`."""

    def guest_of(self, value: str | None, cluster: str, detector: str | None) -> object:
        """Return the guest of `--guest`, or None without one. Raises CommandError and DocumentError."""

    def exporter_for(self, name: str | None, plans: Sequence[Plan]) -> str:
        """Return the release of dcgm-exporter that is asked for or that suits the plans. Raises CommandError."""

    def embedded(
        self,
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
        guest: object = None,
    ) -> AbstractContextManager[VirtualCluster]:
        """Start a cluster for the block, with Prefect's settings and the flow's module.

        Args:
            out: The terminal of the person who waits.
            nodes: Virtual GPU nodes.
            gpus: GPUs of each.
            detector: Who watches, as in `--detector`.
            cluster: The control plane, as in `--cluster`.
            keep: Keep the cluster's folder.
            flow: The module of the flow that is played, which is imported meanwhile.
            spare: GPU nodes' worth of room that the training work leaves.
            slow: GPUs that compute slowly.
            seed: Chooses them.
            exporter: What `exporter_for` returned.
            guest: What `guest_of` returned.

        Raises:
            CommandError: A choice does not exist, or does not fit this machine.
            StartError: The cluster does not start.
        """

    def kept(
        self, out: Console, folder: Path, nodes: int, gpus: int, detector: str, repair: str
    ) -> AbstractContextManager[KeptCluster]:
        """Start a cluster in this folder for the block, with Prefect's settings, on Prefect's usual port.

        Raises CommandError and StartError, as `embedded`.
        """

    def on_model_node(self, fault: FaultParameters, gpu: int, gpus: int) -> Sequence[str]:
        """Return what the fault's injector does on a node with this many GPUs, in a person's words."""


_FUNCTIONS = [name for name in vars(VirtualClusters) if not name.startswith("_")]


def virtual_clusters() -> VirtualClusters:
    """Return what starts virtual clusters. Raises CommandError if no installed package does."""
    found = installed_virtual_clusters()
    if found is None:
        raise CommandError(
            "no installed package starts virtual clusters: pip install gpu-gameday-rehearsal", ExitCode.REFUSED
        )
    return found


def installed_virtual_clusters() -> VirtualClusters | None:
    """Return what starts virtual clusters; None if no installed package does."""
    return next(iter(find(Group.VIRTUAL_CLUSTERS, (), _functions).parts.values()), None)


def _functions(module: ModuleType) -> dict[str, VirtualClusters]:
    if missing := [name for name in _FUNCTIONS if not hasattr(module, name)]:
        raise ValueError(f"{module.__name__} lacks {', '.join(missing)}")
    return {"virtual clusters": cast(VirtualClusters, module)}


def check_fit(plan: Plan, nodes: int, gpus: int) -> None:
    """Refuse a cluster that is too small for the plan's expectations. Raises CommandError.

    `gpus` is the number of GPUs of each of the `nodes`.
    """
    if (plan.qa.floors.gpus or 0) > gpus:
        raise CommandError(
            f"plan {plan.name} wants {plan.qa.floors.gpus} GPUs per node (qa.floors.gpus), and --gpus is {gpus}:"
            " raise --gpus, or lower the plan's"
        )
    if plan.targets.nodes > nodes:
        raise CommandError(
            f"plan {plan.name} aims at {plan.targets.nodes} nodes (targets.nodes), and --nodes is {nodes}:"
            " raise --nodes, or lower the plan's"
        )
