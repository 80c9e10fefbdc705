"""`gameday lab up | down | status`, and `restart`, `kill` and others of one component of a running lab."""

from __future__ import annotations

import json
import os
import shlex
import signal
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import shown
from gameday.values.nodes import MAX_NODES
from gameday_rehearsal.cli.lab_options import LabOptions, takes_lab_options
from gameday_rehearsal.cli.long_running import end_holder, running_state

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console

    from gameday_rehearsal.lab.lab import Lab
    from gameday_rehearsal.lab.status import ComponentStatus

_FOLDER = Path(".lab")

# The verbs of gameday/cluster/lab_control.py, which is not imported to print a help page; a test compares them.
_VERBS = {
    "restart": "End a component of a running lab, after 2 s by force, and start it again at once.",
    "kill": "Kill a component of a running lab (SIGKILL), which starts it again as after any crash.",
    "pause": "Stop a component of a running lab (SIGSTOP): it keeps its connections and answers nothing.",
    "resume": "Let a paused component of a running lab go on.",
    "hold": "End a component of a running lab and leave it so until it is to start.",
    "start": "Start a held component of a running lab.",
}

Folder = Annotated[Path, typer.Option(help="Folder for the lab's kubeconfigs, certificates, data and logs.")]


def register(app: typer.Typer) -> None:
    """Add the lab's commands."""
    lab = typer.Typer(
        cls=HelpGroup,
        help="Keep a real etcd, kube-apiserver, scheduler and controller-manager running, with virtual GPU nodes.",
        no_args_is_help=True,
    )
    add_command(lab, up, "gameday lab up --nodes 100")
    add_command(lab, down, "gameday lab down")
    add_command(lab, status, "gameday lab status")
    add_command(lab, image, "gameday lab image gameday.tar")
    for verb, says in _VERBS.items():
        add_command(lab, _asks(verb), f"gameday lab {verb} etcd", name=verb, help=says)
    app.add_typer(lab, name="lab", rich_help_panel=Panel.VIRTUAL)


@takes_lab_options
def up(
    nodes: Annotated[
        int, typer.Option(min=0, max=MAX_NODES, help="Number of virtual GPU nodes. 0 starts only the control plane.")
    ] = 8,
    gpus: Annotated[int, typer.Option(min=1, max=16, help="GPUs per virtual node.")] = 8,
    folder: Folder = _FOLDER,
    *,
    lab_options: LabOptions,
) -> int:
    """Start a lab and keep it running until Ctrl-C or `gameday lab down`. What crashes is started again."""
    from gameday_rehearsal.lab.lab import Lab
    from gameday_rehearsal.signals import broken_off_by_signals, ignore_signals
    from gameday_rehearsal.watch import Watch, check_memory

    out = console()
    lab = Lab(folder, nodes, gpus, lambda line: out.print(line, soft_wrap=True), lab_options.settings())
    is_up = False
    # As Ctrl-C would: the main thread may wait for a process that starts, or for one that ends.
    watch = Watch(check_memory, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    with broken_off_by_signals(), watch:
        try:
            out.print(f"starting a control plane and {nodes} virtual nodes with {gpus} GPUs each", style="dim")
            with out.status("processes start"):
                lab.start()
            is_up = True
            _print_how_to(out, lab, nodes)
            lab.supervise()
        except KeyboardInterrupt:
            if watch.error:
                raise CommandError(f"{watch.error}; the lab is ended", ExitCode.ABORTED) from None
            if not is_up:
                raise
        finally:
            ignore_signals()
            lab.end()
    return ExitCode.PASSED


def down(folder: Folder = _FOLDER) -> int:
    """End the lab of this folder. Exit code 0 also when none runs."""
    return end_holder(folder, "lab")


def status(folder: Folder = _FOLDER) -> int:
    """Ask each component whether it is ready: JSON, a table on a terminal. Exit code 0 when all are, else 1."""
    from gameday_rehearsal.lab.status import ask

    state = running_state(folder, "lab")
    if state is None:
        return ExitCode.FAILED
    components = ask(folder / "control-plane")
    out = console()
    if out.is_terminal:
        _print_table(out, components)
    else:
        typer.echo(json.dumps({**state, "components": [asdict(one) for one in components]}, indent=1))
    return ExitCode.PASSED if components and all(one.ready for one in components) else ExitCode.FAILED


def image(
    archive: Annotated[
        Path, typer.Argument(help="An OCI or Docker archive, such as docker save writes.", dir_okay=False)
    ],
    folder: Folder = _FOLDER,
) -> int:
    """Give the real node of a running lab the images of a file, for pods with imagePullPolicy: Never."""
    from gameday.errors import ChildError, ProgramMissingError
    from gameday_rehearsal.lab.real_node.network import REAL_NODE
    from gameday_rehearsal.lab.real_node.node import import_image

    if not archive.is_file():
        raise CommandError(f"no file {shown(str(archive))}: docs/lab.md, A real node, has the command that makes one")
    node = folder.absolute() / "control-plane" / REAL_NODE
    if not node.is_dir():
        raise CommandError(f"no lab with a real node runs in {folder}: `gameday lab up --real-node`", ExitCode.REFUSED)
    try:
        import_image(node, archive.absolute())
    except (ChildError, ProgramMissingError) as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    return ExitCode.PASSED


def _asks(verb: str) -> Callable[..., int]:
    """Return the command that asks the folder's lab for this of a component."""

    def command(
        component: Annotated[str, typer.Argument(help="A component's name, as `gameday lab status` shows it.")],
        folder: Folder = _FOLDER,
    ) -> int:
        from gameday.cluster.lab_control import SOCKET, Verb, ask_lab
        from gameday.errors import ControlError

        try:
            pid = ask_lab(folder / "control-plane" / SOCKET, Verb(verb), component)
        except ControlError as error:
            raise CommandError(str(error), ExitCode.REFUSED) from None
        typer.echo(f"{component}: process {pid}" if pid else f"{component} does not run just now")
        return ExitCode.PASSED

    return command


def _print_how_to(out: Console, lab: Lab, nodes: int) -> None:
    kubeconfig, runner = lab.admin_kubeconfig, lab.folder / "gameday-runner.kubeconfig"
    lines = [
        "the lab is up; Ctrl-C ends it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(kubeconfig))}",
        "  kubectl get nodes" if nodes else "  kubectl get --raw '/readyz?verbose'",
        f"  kubectl --kubeconfig {shlex.quote(str(runner))} auth can-i --list",
        f"  gameday lab status --folder {shlex.quote(str(lab.folder))}",
        f"  kubernetes    {lab.control_plane.url}",
    ]
    out.print("\n".join(lines), soft_wrap=True)


def _print_table(out: Console, components: Sequence[ComponentStatus]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in ("component", "version", "ready", "pid", "restarts", "up", "log"):
        table.add_column(heading, overflow="fold")
    for one in components:
        pid = str(one.pid or "-")
        ready = "yes" if one.ready else "no"
        table.add_row(one.name, one.version, ready, pid, str(one.restarts), f"{one.uptime_s:.0f} s", one.log)
    out.print(table)
