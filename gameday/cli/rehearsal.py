"""`gameday rehearse`, and `gameday rehearsal up | down | status`: whatever starts or ends an embedded cluster."""

from __future__ import annotations

import atexit
import json
import os
import shlex
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from gameday.cli.console import console
from gameday.cli.exit_codes import CommandError, ExitCode
from gameday.cli.game_day import DEFAULT_PLAN, Reports, check_plan, check_reports, play

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.plan.models import Plan
    from gameday.rehearsal.cluster import Detector, RehearsalCluster

_FOLDER = Path(".rehearsal")
# The supervisor gives its processes 5 s before it kills them.
_ENDS_WITHIN_S = 20.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LEAVES_NO_LOGS = (ExitCode.HELD, ExitCode.BROKEN, ExitCode.ABORTED)
"""After any other end the cluster's own logs are what is left to look at."""

Nodes = Annotated[int, typer.Option(min=1, max=1000, help="Virtual GPU nodes.")]
Gpus = Annotated[int, typer.Option(min=1, max=16, help="GPUs per virtual node.")]
Watcher = Annotated[
    str,
    typer.Option(
        "--detector", help="Who watches the kernel logs: catalogue (our policy), konduktor (as released), off."
    ),
]
Folder = Annotated[Path, typer.Option(help="The cluster's folder: kubeconfig, profile, logs.")]


def register(app: typer.Typer) -> None:
    """Add the commands of the embedded cluster."""
    app.command()(rehearse)
    rehearsal = typer.Typer(
        help="Keep an embedded cluster running, for kubectl and the Prefect UI.", no_args_is_help=True
    )
    rehearsal.command()(up)
    rehearsal.command()(down)
    rehearsal.command()(status)
    app.add_typer(rehearsal, name="rehearsal")


def rehearse(
    plan: Annotated[str, typer.Argument(help="A shipped plan's name, or a plan file.")] = DEFAULT_PLAN,
    nodes: Nodes = 8,
    gpus: Gpus = 8,
    detector: Watcher = "catalogue",
    reports: Reports = Path("reports"),
    keep: Annotated[bool, typer.Option(help="Keep the cluster's folder with its logs.")] = False,
) -> int:
    """Run a whole game-day on an embedded cluster: everything real but the metal."""
    from gameday.rehearsal.cluster import RehearsalCluster, RehearsalError, Size  # noqa: PLC0415

    watcher = _detector(detector)
    _check_fit(check_plan(plan), nodes, gpus)
    check_reports(reports)
    out = console()
    folder = Path(tempfile.mkdtemp(prefix="gameday-rehearsal-"))
    code = ExitCode.INTERNAL
    try:
        cluster = RehearsalCluster(folder, Size(nodes, gpus), watcher)
        _set_prefect(folder / "prefect-client", cluster.urls["prefect"])
        # Prefect and pandas load for seconds, just as the cluster does.
        threading.Thread(target=_load_flow, name="import", daemon=True).start()
        with _running(cluster, out):
            command = ["gameday", "rehearse", plan, "--nodes", nodes, "--gpus", gpus, "--detector", detector]
            line = shlex.join(str(word) for word in command)
            code = ExitCode(play(out, plan, cluster.profile, reports, "rehearsal", line))
    except RehearsalError as error:
        code = ExitCode.REFUSED
        raise CommandError(str(error), code) from None
    except KeyboardInterrupt:
        code = ExitCode.ABORTED
        raise
    except CommandError as error:
        code = error.code
        raise
    finally:
        if keep or code not in _LEAVES_NO_LOGS:
            out.print(f"the cluster's logs: {folder}", soft_wrap=True)
        else:
            shutil.rmtree(folder, ignore_errors=True)
            # Prefect makes its home while it is imported, which after Ctrl-C may be just now.
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return code


def up(nodes: Nodes = 8, gpus: Gpus = 8, detector: Watcher = "catalogue", folder: Folder = _FOLDER) -> int:
    """Start an embedded cluster and keep it until Ctrl-C or `gameday rehearsal down`."""
    from gameday.rehearsal.cluster import RehearsalCluster, RehearsalError, Size  # noqa: PLC0415

    out = console()
    cluster = RehearsalCluster(folder, Size(nodes, gpus), _detector(detector))
    ended = threading.Event()
    try:
        with _running(cluster, out):
            for which in _SIGNALS:
                signal.signal(which, lambda *_: ended.set())
            _print_how_to(out, cluster)
            while not ended.wait(1.0):
                if died := cluster.dead():
                    raise CommandError(f"{cluster.child(died[0]).error('died')}; the rest is ended", ExitCode.INTERNAL)
    except RehearsalError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    return ExitCode.HELD


def down(folder: Folder = _FOLDER) -> int:
    """End the embedded cluster of this folder. Exit code 0 also when none runs."""
    from gameday.rehearsal.folder import holder  # noqa: PLC0415

    pid = holder(folder)
    if pid is None:
        typer.echo(f"no rehearsal runs in {folder}")
        return ExitCode.HELD
    if pid == 0:
        raise CommandError(f"a rehearsal has just begun in {folder}; try again", ExitCode.REFUSED)
    try:
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return ExitCode.HELD
    except PermissionError:
        raise CommandError(f"process {pid}, which holds {folder}, is another user's", ExitCode.REFUSED) from None
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while holder(folder) == pid:
        if time.monotonic() > deadline:
            raise CommandError(f"process {pid} did not end within {_ENDS_WITHIN_S:g} s", ExitCode.INTERNAL)
        time.sleep(0.1)
    return ExitCode.HELD


def status(folder: Folder = _FOLDER) -> int:
    """Say whether an embedded cluster runs in this folder, and where. Exit code 0 when it does, 1 when not (yet)."""
    from gameday.rehearsal.folder import STATE, holder  # noqa: PLC0415

    pid = holder(folder)
    if pid is None:
        typer.echo(f"no rehearsal runs in {folder}")
        return ExitCode.BROKEN
    try:
        state: dict[str, Any] = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        typer.echo(f"a rehearsal starts or ends in {folder} (process {pid})")
        return ExitCode.BROKEN
    typer.echo(json.dumps(state, indent=1))
    return ExitCode.HELD


@contextmanager
def _running(cluster: RehearsalCluster, out: Console) -> Iterator[None]:
    """The cluster for as long as the block runs. Ctrl-C and SIGTERM break off its start; nothing breaks off its end."""
    size = cluster.size
    out.print(f"starting a cluster of {size.nodes} virtual nodes with {size.gpus} GPUs each", style="dim")
    before = {which: signal.signal(which, _break_off) for which in _SIGNALS}
    try:
        with out.status("processes start"):
            cluster.start()
        yield
    finally:
        _ignore_signals()
        cluster.end()
        for which, handler in before.items():
            signal.signal(which, handler)


def _break_off(number: int, frame: FrameType | None) -> NoReturn:
    """Only the first one interrupts: a second must not break off the end that the first began."""
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for which in _SIGNALS:
        signal.signal(which, signal.SIG_IGN)


def _load_flow() -> None:
    with suppress(Exception):  # whoever needs it imports it again and gets the error
        import_module("flows.game_day")


def _detector(name: str) -> Detector:
    from gameday.rehearsal.cluster import Detector  # noqa: PLC0415

    try:
        return Detector(name)
    except ValueError:
        raise CommandError(f"--detector {name!r}: choose one of {', '.join(Detector)}") from None


def _check_fit(plan: Plan, nodes: int, gpus: int) -> None:
    """Refuse a cluster on which the plan could not hold whatever the chain did."""
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


def _set_prefect(home: Path, url: str) -> None:
    from gameday.rehearsal.prefect_server import prefect_environment  # noqa: PLC0415

    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(prefect_environment(home))
    os.environ["PREFECT_API_URL"] = f"{url}/api"


def _print_how_to(out: Console, cluster: RehearsalCluster) -> None:
    profile = shlex.quote(str(cluster.profile))
    lines = [
        "the cluster is up; Ctrl-C ends it. In another terminal:",
        f"  export KUBECONFIG={shlex.quote(str(cluster.admin_kubeconfig))}",
        f"  export PREFECT_API_URL={cluster.urls['prefect']}/api",
        "  kubectl get nodes",
        f"  gameday run {DEFAULT_PLAN} --profile {profile}",
    ]
    lines += [f"  {name:<13} {url}" for name, url in cluster.urls.items()]
    out.print("\n".join(lines), soft_wrap=True)
