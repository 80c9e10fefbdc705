"""`gameday rehearse --this-machine`: a game-day on the machine one sits at, as the only node of a cluster."""

from __future__ import annotations

import shlex
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import check_reports, complete, play, read_plan
from gameday.cli.rehearse_options import DEFAULT_DETECTOR
from gameday.cli.virtual_clusters import check_fit
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday_rehearsal.cli.choices import lab_settings_of, watching_profile
from gameday_rehearsal.cli.embedded_cluster import embedded
from gameday_rehearsal.cli.gpu_stack_options import exporter_for

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.models import Plan
    from gameday_rehearsal.cli.lab_options import LabOptions
    from gameday_rehearsal.this_machine.sight import Sight

_LOCK = "\0gameday-this-machine"

ThisMachine = Annotated[
    bool,
    typer.Option(
        "--this-machine",
        help="Play on this machine, with its real GPUs and kernel log, in place of virtual nodes (docs/metal.md).",
    ),
]
May = Annotated[
    str | None,
    typer.Option(
        metavar="change,reset",
        help="With --this-machine: allow settings of the GPU that are set back (change), or its reset (reset).",
    ),
]


def rehearse_here(
    plan: str | None,
    detector: str | None,
    cluster: str | None,
    may: str | None,
    reports: Path,
    lab_options: LabOptions,
    *,
    keep: bool,
) -> int:
    """Play a plan on this machine.

    Raises:
        CommandError: Machine, plan and permissions do not fit together.
        DocumentError: The plan cannot be read.
    """
    from gameday_rehearsal.blueprint import MachineUse
    from gameday_rehearsal.this_machine.fit import RESET, default_plan, faults_here, fitted, permissions, refuse_unfit
    from gameday_rehearsal.this_machine.sight import look

    allowed, out, sight = permissions(may), console(), look()
    plan = plan or default_plan(sight)
    written = read_plan(plan)
    if sight.obstacles:
        raise CommandError("; ".join(sight.obstacles), ExitCode.REFUSED)
    refuse_unfit(written, sight, allowed)
    changed, changes = fitted(written, sight)
    defaults = changed.plan.rehearsal
    cluster = cluster or defaults.cluster or "embedded"
    detector = detector or _watcher(changed.plan)
    loaded = complete(changed, (), watching_profile(detector, None))
    check_fit(loaded.plan, 1, len(sight.gpus))
    check_reports(reports)
    _say(out, sight, changes)
    use = MachineUse(faults_here(allowed), has_gpus=sight.has_gpus, resets_gpu=RESET in allowed)
    with (
        _alone(),
        embedded(
            out,
            1,
            len(sight.gpus),
            detector,
            cluster,
            keep=keep,
            flow="gameday.flows.game_day",
            lab=lab_settings_of(cluster, lab_options, defaults),
            exporter=exporter_for(None, [loaded.plan]),
            this_machine=use,
        ) as here,
    ):
        command = ["gameday", "rehearse", plan, "--this-machine", *(["--may", may] if may else [])]
        command += ["--detector", detector, "--cluster", cluster, *lab_options.words()]
        code = play(out, loaded, plan, str(here.profile), reports, "manual", shlex.join(command))
        return here.end_with(ExitCode(code))


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the machine for the block. Raises CommandError if another game-day does.

    The lock is a name in the abstract namespace of unix(7), which the kernel frees with the process.
    """
    with socket.socket(socket.AF_UNIX) as lock:
        try:
            lock.bind(_LOCK)
        except OSError:
            raise CommandError(
                "another game-day is being played on this machine, and each would read the other's lines: wait for its "
                "end, or press Ctrl-C there",
                ExitCode.REFUSED,
            ) from None
        yield


def _watcher(plan: Plan) -> str:
    """Return our controller's policy of the detector that the plan names, if there is one, else the default."""
    from gameday_rehearsal.blueprint import Detector

    return plan.detector if plan.detector in list(Detector) else DEFAULT_DETECTOR


def _say(out: Console, sight: Sight, changes: list[str]) -> None:
    models = ", ".join(dict.fromkeys(gpu.name or "a GPU that is lost" for gpu in sight.gpus))
    out.print(f"this machine has {len(sight.gpus)} GPU(s): {models}", soft_wrap=True)
    for line in sight.unseen:
        out.print(f"not seen: {line}", style="yellow", soft_wrap=True)
    for line in changes:
        out.print(f"changed for this machine: {line}", style="yellow", soft_wrap=True)
