"""`gameday rehearse`, `run`, `report`, `reap`, and `gameday rehearsal up | down | status`."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.exit_codes import CommandError, ExitCode

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.rehearsal.cluster import RehearsalCluster

DEFAULT_PLAN = "gpu-fell-off-the-bus"
_FOLDER = Path(".rehearsal")
# What goes wrong is said by the run's own history; Prefect's log would only repeat it as a traceback.
_QUIET_PREFECT = {
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "PREFECT_LOGGING_LEVEL": "CRITICAL",
    "PREFECT_LOGGING_TO_API_ENABLED": "false",
}

Reports = Annotated[Path, typer.Option(help="Folder the run's own folder is made in.")]
Nodes = Annotated[int, typer.Option(min=1, max=1000, help="Virtual GPU nodes.")]
Gpus = Annotated[int, typer.Option(min=1, max=16, help="GPUs per virtual node.")]
Watcher = Annotated[
    str,
    typer.Option(
        "--detector", help="Who watches the kernel logs: catalogue (our policy), konduktor (as released), off."
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands that meet a cluster."""
    app.command()(rehearse)
    app.command()(run)
    app.command()(report)
    app.command()(reap)
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
    from gameday.rehearsal.cluster import Detector, RehearsalCluster, RehearsalError, Size  # noqa: PLC0415

    _check_plan(plan)
    _check_reports(reports)
    console = _console()
    folder = Path(tempfile.mkdtemp(prefix="gameday-rehearsal-"))
    cluster = RehearsalCluster(folder, Size(nodes, gpus), Detector(_one_of(detector, Detector)))
    _set_prefect(folder / "prefect-client", cluster.urls["prefect"])
    importing = threading.Thread(target=import_module, args=("flows.game_day",), name="import")
    importing.start()
    try:
        with _starting(console, f"starting a cluster of {nodes} virtual nodes with {gpus} GPUs each"), _unwind(cluster):
            importing.join()
            code = _play(console, plan, cluster.profile, reports, "rehearsal", f"gameday rehearse {plan}")
    except RehearsalError as error:
        keep = True
        raise CommandError(str(error), ExitCode.REFUSED) from None
    finally:
        if keep:
            console.print(f"the cluster's logs: {folder}", soft_wrap=True, highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    return code


def run(
    plan: Annotated[str, typer.Argument(help="A shipped plan's name, or a plan file.")],
    profile: Annotated[
        Path | None, typer.Option(help="Cluster profile; without one, GAMEDAY_* of the environment.")
    ] = None,
    reports: Reports = Path("reports"),
) -> int:
    """Run a game-day on a real cluster (or on a running rehearsal), by its profile."""
    from gameday.cluster.profile import ProfileError, load_profile  # noqa: PLC0415

    _check_plan(plan)
    _check_reports(reports)
    try:
        load_profile(profile)
    except ProfileError as error:
        raise CommandError(str(error)) from None
    for name, value in _QUIET_PREFECT.items():
        os.environ.setdefault(name, value)
    return _play(_console(), plan, profile, reports, "manual", f"gameday run {plan}")


def report(folder: Annotated[Path, typer.Argument(help="A run's folder.")]) -> int:
    """Render a run's report again, from its folder alone. Exit code: the run's own."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from gameday.report.render import render  # noqa: PLC0415

    if not (folder / "history.jsonl").is_file():
        raise CommandError(f"{folder} holds no history.jsonl; give the folder of a run")
    try:
        rendered = render(folder, datetime.now(UTC))
    except OSError as error:
        raise CommandError(f"the report cannot be written: {error.filename}: {error.strerror}") from None
    _console().print(str(rendered.html), soft_wrap=True, highlight=False)
    return rendered.result.exit_code


def reap(
    profile: Annotated[
        Path | None, typer.Option(help="Cluster profile; without one, GAMEDAY_* of the environment.")
    ] = None,
    wait: Annotated[
        bool, typer.Option(help="Wait until a run that stopped renewing its lease may be taken for dead.")
    ] = True,
) -> int:
    """Undo what dead runs left in the cluster."""
    from gameday.cluster.http import AdapterError  # noqa: PLC0415
    from gameday.cluster.kubernetes import Kubernetes  # noqa: PLC0415
    from gameday.cluster.profile import ProfileError, load_profile  # noqa: PLC0415

    try:
        kubernetes = Kubernetes(load_profile(profile))
        return _reap(_console(), kubernetes, wait)
    except ProfileError as error:
        raise CommandError(str(error)) from None
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.UNKNOWN) from None


def up(nodes: Nodes = 8, gpus: Gpus = 8, detector: Watcher = "catalogue", folder: Path = _FOLDER) -> int:
    """Start an embedded cluster and keep it until Ctrl-C or `gameday rehearsal down`."""
    from gameday.rehearsal.cluster import Detector, RehearsalCluster, RehearsalError, Size  # noqa: PLC0415

    console = _console()
    cluster = RehearsalCluster(folder, Size(nodes, gpus), Detector(_one_of(detector, Detector)))
    ended = threading.Event()
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: ended.set())
    try:
        with _starting(console, f"starting a cluster of {nodes} virtual nodes with {gpus} GPUs each"), _unwind(cluster):
            _print_how_to(console, cluster)
            while not ended.wait(1.0):
                if dead := cluster.dead():
                    raise RehearsalError(f"{', '.join(dead)} died; see {folder}/{dead[0]}.log")
    except RehearsalError as error:
        raise CommandError(str(error), ExitCode.INTERNAL) from None
    return ExitCode.HELD


def down(folder: Path = _FOLDER) -> int:
    """End the embedded cluster of this folder."""
    import time  # noqa: PLC0415

    state = _state(folder)
    if state is None:
        _console().print(f"no rehearsal runs in {folder}")
        return ExitCode.HELD
    os.kill(state["pid"], signal.SIGTERM)
    deadline = time.monotonic() + 20
    while _state(folder) is not None:
        if time.monotonic() > deadline:
            raise CommandError(f"process {state['pid']} did not end within 20 s", ExitCode.INTERNAL)
        time.sleep(0.1)
    return ExitCode.HELD


def status(folder: Path = _FOLDER) -> int:
    """Say whether an embedded cluster runs in this folder, and where. Exit code 0 when it does, 1 when not."""
    import json  # noqa: PLC0415

    state = _state(folder)
    if state is None:
        _console().print(f"no rehearsal runs in {folder}")
        return ExitCode.BROKEN
    typer.echo(json.dumps(state, indent=1))
    return ExitCode.HELD


def _play(console: Console, plan: str, profile: Path | None, reports: Path, trigger: str, command: str) -> int:
    """Run the flow in this thread with the live view beside it; print verdicts and the report's path."""
    from flows.game_day import game_day  # noqa: PLC0415
    from gameday.checks.outcome import RunResult  # noqa: PLC0415
    from gameday.cli.live import LiveView  # noqa: PLC0415
    from gameday.cli.verdicts import print_result  # noqa: PLC0415
    from gameday.run.lifecycle import new_run_id  # noqa: PLC0415

    run_id = new_run_id()
    folder = reports / run_id
    with LiveView(folder / "history.jsonl", console):
        state = game_day(
            plan=plan,
            profile=str(profile) if profile else None,
            reports=str(reports),
            trigger=trigger,
            run_id=run_id,
            command=command,
            return_state=True,
        )
    result: object = state.result(raise_on_failure=False)
    if isinstance(result, BaseException):
        raise result
    assert isinstance(result, RunResult)
    if not (folder / "report.html").exists():
        raise CommandError(result.why, ExitCode(result.exit_code))
    return print_result(console, folder)


def _reap(console: Console, kubernetes: object, wait: bool) -> int:
    import time  # noqa: PLC0415

    from gameday.ledger.reaper import reap as reap_once  # noqa: PLC0415
    from gameday.ledger.reaper import when  # noqa: PLC0415

    result = reap_once(kubernetes)  # type: ignore[arg-type]
    if result.alive and wait:
        held = result.alive[0]
        console.print(f"{held}; waiting {when(held):.0f} s until it expires (--no-wait does not)", highlight=False)
        time.sleep(when(held) + 0.5)
        result = reap_once(kubernetes)  # type: ignore[arg-type]
    for one in result.reaped:
        console.print(
            f"{one.run_id}  {one.entry.act}: {one.cleanliness}", soft_wrap=True, highlight=False, markup=False
        )
    for key in result.unreadable:
        console.print(f"ledger entry {key} cannot be read; look at it with kubectl", style="yellow", markup=False)
    for held in result.alive:
        console.print(f"{held}: it lives, and cleans up after itself", highlight=False, markup=False)
    if not result.reaped and not result.alive:
        console.print("nothing to reap")
    return ExitCode.HELD if result.clean else ExitCode.DIRTY


def _check_plan(plan: str) -> None:
    """Refuse a bad plan before anything is started; raises PlanError."""
    from gameday.faults.registry import parameter_models  # noqa: PLC0415
    from gameday.plan.catalogue import find_plan  # noqa: PLC0415
    from gameday.plan.load import load_plan  # noqa: PLC0415

    load_plan(find_plan(plan), parameter_models())


def _check_reports(reports: Path) -> None:
    """A run whose history cannot be written must not begin."""
    try:
        reports.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=reports, prefix=".probe-") as probe:
            probe.write(b"\0" * 65536)
            probe.flush()
            os.fsync(probe.fileno())
    except OSError as error:
        raise CommandError(
            f"the report folder {reports} cannot be written: {error.strerror}; make room, or name another: --reports",
            ExitCode.REFUSED,
        ) from None


def _one_of(value: str, choices: type) -> str:
    names = [str(choice) for choice in choices]  # type: ignore[attr-defined]
    if value not in names:
        raise CommandError(f"--detector {value!r}: choose one of {', '.join(names)}")
    return value


def _set_prefect(home: Path, url: str) -> None:
    from gameday.rehearsal.cluster import prefect_environment  # noqa: PLC0415

    home.mkdir(parents=True, exist_ok=True)
    os.environ.update(prefect_environment(home))
    os.environ["PREFECT_API_URL"] = f"{url}/api"


@contextmanager
def _starting(console: Console, what: str) -> Iterator[None]:
    console.print(what, style="dim")
    yield


@contextmanager
def _unwind(cluster: RehearsalCluster) -> Iterator[None]:
    """The cluster for as long as the block runs; while it ends, Ctrl-C must not leave half of it behind."""
    cluster.__enter__()
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        cluster.end()


def _print_how_to(console: Console, cluster: RehearsalCluster) -> None:
    lines = [
        "the cluster is up; Ctrl-C ends it",
        f"  export KUBECONFIG={cluster.admin_kubeconfig}",
        "  kubectl get nodes",
        f"  gameday run {DEFAULT_PLAN} --profile {cluster.profile}",
    ]
    lines += [f"  {name:<13} {url}" for name, url in cluster.urls.items()]
    console.print("\n".join(lines), soft_wrap=True, highlight=False, markup=False)


def _state(folder: Path) -> dict[str, int] | None:
    """What `up` wrote, if its process still lives."""
    import json  # noqa: PLC0415

    try:
        state: dict[str, int] = json.loads((folder / "state.json").read_text())
        os.kill(state["pid"], 0)
    except (OSError, ValueError, KeyError):
        return None
    return state


def _console() -> Console:
    from rich.console import Console  # noqa: PLC0415

    return Console()
