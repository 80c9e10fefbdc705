"""`gameday up` and `gameday deploy`: Prefect's pages with this project's deployments, for people who work there."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.help_page import Panel, add_command
from gameday.cli.page_server import served_pages
from gameday.cli.rehearse_options import DEFAULT_DETECTOR, Folder, Gpus, Nodes, Repair
from gameday.cli.virtual_clusters import virtual_clusters
from gameday.errors import ChildError, CommandError, StartError
from gameday.exit_codes import ExitCode
from gameday.plain_file import not_written
from gameday.shipped import shipped_prefect_file
from gameday.text import printable

if TYPE_CHECKING:
    from rich.console import Console

    from gameday.cli.redeploy import Registered
    from gameday.processes.children import Child

_FOLDER = Path(".gameday")
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_POOL = "gameday"
"""The work pool of prefect.yaml."""
_WORKER = "gameday-up"
_NO_NOTIFICATIONS = "nobody is notified of red game-days: gameday deploy --notify BLOCK changes that (docs/prefect.md)"
_KEPT = "what people have set in Prefect stays: --reset NAME gives a deployment what the files say (docs/prefect.md)"
_WORKER_ENVIRONMENT = {
    # The lines of a game-day are on its page in Prefect.
    "PREFECT_LOGGING_LEVEL": "INFO",
    "PREFECT_LOGGING_TO_API_ENABLED": "true",
    # A person waits; Prefect's own 10 s would be the longest part of a start.
    "PREFECT_WORKER_QUERY_SECONDS": "2",
    # Prefect's own patience: nobody waits for a flow run's end, and its last state must outlast a server's restart.
    "PREFECT_CLIENT_MAX_RETRIES": "5",
}

Profiles = Annotated[
    list[str] | None,
    typer.Option(
        "--profile",
        metavar="FILE|block:NAME",
        help="Cluster profile that the forms offer beside all blocks. Repeat it for more; the first is the default.",
    ),
]
Plans = Annotated[
    Path, typer.Option(help="Folder of your own plans (*.yaml). The forms offer them beside the shipped ones.")
]
Reports = Annotated[Path, typer.Option(help="Folder for the runs. Each run gets a folder of its own in it.")]
Notify = Annotated[
    str | None,
    typer.Option(
        metavar="BLOCK",
        help="Send red game-days and missed seasons through this notification block of Prefect's (`prefect block ls`), "
        "such as slack-webhook/gpu-oncall.",
    ),
]
Reset = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DEPLOYMENT",
        help="Give this deployment, such as 'season/weekly (breaks GPUs)', or automation what the files say, even if "
        "somebody has changed, switched off or deleted it in Prefect. May be repeated.",
    ),
]
PrefectFile = Annotated[
    Path | None,
    typer.Option(help="A prefect.yaml of your own, such as one with other times. Default: the shipped one."),
]


def register(app: typer.Typer) -> None:
    """Add `gameday up` and `gameday deploy`."""
    add_command(app, up, "gameday up", "gameday up --profile cluster.yaml", panel=Panel.START)
    add_command(
        app,
        deploy,
        "gameday deploy --profile cluster.yaml",
        "gameday deploy --profile eu.yaml --profile us.yaml --plans our-plans",
        "gameday deploy --profile cluster.yaml --notify slack-webhook/gpu-oncall",
        "gameday deploy --profile eu.yaml --profile block:us --pool-per-cluster",
        panel=Panel.CLUSTER,
    )


def up(
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|block:NAME",
            help="Profile of a real cluster. Without it, a cluster of virtual nodes is started.",
        ),
    ] = None,
    nodes: Nodes = 8,
    gpus: Gpus = 8,
    detector: Annotated[
        str, typer.Option(help="Who watches the virtual cluster, as in `gameday rehearse`.")
    ] = DEFAULT_DETECTOR,
    repair: Repair = "off",
    plans: Plans = Path("plans"),
    reports: Reports = Path("reports"),
    prefect_file: PrefectFile = None,
    notify: Notify = None,
    reset: Reset = None,
    folder: Folder = _FOLDER,
) -> int:
    """Start a Prefect server, a worker and a cluster for game-days from Prefect's pages, until Ctrl-C.

    Without --profile it starts a cluster of virtual GPU nodes. With --profile, game-days break the real cluster; then
    the Prefect server of your settings (PREFECT_API_URL) is used if there is one.
    """
    from gameday.cluster.profile import block_name

    out, ended, cluster = console(), threading.Event(), None
    try:
        with ExitStack() as stack:
            if profile:
                if not block_name(profile):  # a file needs no server
                    _check_profiles([profile])
                password_file = stack.enter_context(_server_for(out))
                _check_profiles([profile])
            else:
                virtual = virtual_clusters()
                cluster = stack.enter_context(virtual.kept(out, folder, nodes, gpus, detector, repair))
                password_file = cluster.prefect_password_file
                profile = str(cluster.profile)
            with out.status("deployments and worker start"):
                done = _register(prefect_file, plans, [profile], reports, notify, reset or [])
                pages = stack.enter_context(served_pages(reports))
                worker = stack.enter_context(_worker(folder, reports, pages))
            for which in _SIGNALS:
                signal.signal(which, lambda *_: ended.set())
            _print_how_to(out, password_file, pages, done, profile, notify)
            while not ended.wait(1.0):
                if cluster and cluster.error:
                    raise cluster.error
                if not worker.alive:
                    raise CommandError(f"{worker.error('died')}; the rest is ended", ExitCode.INTERNAL)
            _end_runs(out, worker)
    except ChildError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    return ExitCode.PASSED


def deploy(
    profile: Profiles = None,
    plans: Plans = Path("plans"),
    reports: Reports = Path("reports"),
    prefect_file: PrefectFile = None,
    notify: Notify = None,
    reset: Reset = None,
    pool_per_cluster: Annotated[
        bool,
        typer.Option(
            "--pool-per-cluster",
            help="Give each cluster a season, a reaper and a work pool of its own, and make a deployment that starts a "
            "season on all.",
        ),
    ] = False,
) -> int:
    """Register the deployments at your Prefect server, with forms that offer the plans and clusters there are now.

    Run it again when plans or profiles come or go: what people have set in Prefect stays, and is said. A worker runs
    the flows in the folder where you call this.
    """
    from gameday.cli.prefect_client import require_server

    require_server()
    _check_profiles(profile or [])
    done = _register(
        prefect_file, plans, profile or [], reports, notify, reset or [], pool_per_cluster=pool_per_cluster
    )
    for line in (*done.names, *done.kept, *([_KEPT] if done.kept else ())):
        typer.echo(line)
    if notify is None:
        typer.echo(_NO_NOTIFICATIONS)
    return ExitCode.PASSED


def _check_profiles(profiles: Sequence[str]) -> None:
    from gameday.cluster.profile import load_profile

    for profile in profiles:
        load_profile(profile)


@contextmanager
def _server_for(out: Console) -> Iterator[Path | None]:
    from gameday.cli.prefect_client import prefect_server, set_defaults

    set_defaults()
    with prefect_server(out, whole=True) as password_file:
        yield password_file


def _register(
    prefect_file: Path | None,
    plans: Path,
    profiles: Sequence[str],
    reports: Path,
    notify: str | None,
    reset: Sequence[str],
    *,
    pool_per_cluster: bool = False,
) -> Registered:
    """Register the deployments and the automations. Raises CommandError and DocumentError."""
    import httpx
    from prefect.deployments.runner import DeploymentApplyError
    from prefect.settings import PREFECT_API_URL

    from gameday.cli.automations import update_automations
    from gameday.cli.deployment_form import Choices, offered
    from gameday.cli.deployments import declared, per_cluster
    from gameday.cli.prefect_client import gone_message
    from gameday.cli.register_deployments import register_deployments
    from gameday.cluster.profile import reachable

    given, blocks = [reachable(profile) for profile in profiles], _blocks()
    clusters = list(_named_clusters(given or blocks)) if pool_per_cluster else []
    named = _by_name([*given, *blocks])
    profiles_given = {name: source for name, source in named.items() if source in given}
    choices = Choices(*offered(_plans(plans)), profiles_given, named, str(reports.resolve()), clusters)
    wanted = [*declared(prefect_file or shipped_prefect_file()), *(per_cluster(clusters) if clusters else ())]
    try:
        done = register_deployments(wanted, choices, Path.cwd(), reset)
        return done + update_automations(notify, reset) if notify else done
    except httpx.TransportError:
        url = PREFECT_API_URL.value()
        why = f"the Prefect server {url} does not answer; start it, or set PREFECT_API_URL to another one's API"
        raise CommandError(why, ExitCode.REFUSED) from None
    except httpx.HTTPStatusError as error:
        why = gone_message(error) or f"the Prefect server does not take it: {printable(error.response.text)}"
        raise CommandError(why, ExitCode.REFUSED) from None
    except DeploymentApplyError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None


def _blocks() -> list[str]:
    """Return the clusters' blocks as profiles. Raises CommandError if Prefect does not list them."""
    from gameday.cluster.profile import BLOCK
    from gameday.cluster.profile_block import block_names
    from gameday.errors import ProfileError

    try:
        return [f"{BLOCK}{name}" for name in block_names()]
    except ProfileError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None


def _by_name(sources: Sequence[str]) -> dict[str, str]:
    """Return profiles by the form's name for their cluster; if two share a name, the second goes by its source."""
    from gameday.cluster.profile import block_name, load_profile

    named: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        name = block_name(source) or load_profile(source).name
        named[source if name in named else name] = source
    return named


def _named_clusters(sources: Sequence[str]) -> dict[str, str]:
    """Return the profiles by their clusters' names: a block's own name, or the name that a file gives its cluster."""
    from gameday.cluster.profile import BLOCK_NAME, block_name, load_profile

    named: dict[str, str] = {}
    for source in dict.fromkeys(sources):
        name = block_name(source) or load_profile(source).name
        if not BLOCK_NAME.fullmatch(name):
            raise CommandError(
                f"{source}: name: {name} cannot name a work pool; use lower-case letters, digits and dashes"
            )
        if name in named:
            raise CommandError(
                f"{named[name]} and {source} are both named {name}: leave one out, or give its cluster another name"
            )
        named[name] = source
    if not named:
        raise CommandError("--pool-per-cluster needs clusters: give --profile, or store blocks (gameday cluster save)")
    return named


def _plans(folder: Path) -> dict[str, Path]:
    """Return the files of the plans to offer: the folder's own by path, then the shipped ones by name."""
    from gameday.plan.catalogue import package_plans, shipped_plans
    from gameday.shipped import shipped

    own = [] if folder.resolve() == shipped("plans").resolve() else sorted(folder.glob("*.yaml"))
    return {str(path.resolve()): path for path in own} | shipped_plans() | package_plans()


@contextmanager
def _worker(folder: Path, reports: Path, pages: str) -> Iterator[Child]:
    """Run a worker of the pool for the block, once the server knows it.

    Args:
        folder: Folder for its log.
        reports: The folder with the served pages.
        pages: Their base URL.

    Raises:
        ChildError: It did not start.
        StartError: Its log cannot be written.
    """
    from gameday.cli.prefect_runs import end_cancelled, is_heard
    from gameday.processes.children import Child
    from gameday.tasks.artifacts import SERVED_FOLDER_VARIABLE, SERVED_URL_VARIABLE

    argv = [sys.executable, "-m", "prefect", "worker", "start", "--pool", _POOL, "--type", "process", "--name", _WORKER]
    environment = {
        **_WORKER_ENVIRONMENT,
        SERVED_URL_VARIABLE: pages,
        SERVED_FOLDER_VARIABLE: str(reports.resolve()),
    }
    worker = Child("worker", argv, folder / "worker.log", environment, says_ready=False, plays_game_days=True)
    began = datetime.now(UTC)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        worker.start()
    except OSError as error:
        why = not_written(error, folder)
        raise StartError(f"the worker's log cannot be written: {why}; --folder names another") from None
    try:
        end_cancelled(_POOL)
        worker.await_condition(lambda: is_heard(_POOL, _WORKER, began), "is not heard by Prefect", every_s=0.5)
        yield worker
    finally:
        worker.end()


def _end_runs(out: Console, worker: Child) -> None:
    """Cancel the worker's runs, and wait until each has undone its fault and written its report."""
    import httpx

    from gameday.cli.prefect_runs import cancel_all

    again = threading.Event()
    for which in _SIGNALS:
        signal.signal(which, lambda *_: again.set())
    assert worker.process is not None
    try:
        cancel_all(_POOL, worker.process.pid, again, lambda line: out.print(line, soft_wrap=True))
    except httpx.HTTPError:
        raise CommandError(
            "Prefect does not answer, so what still ran was not cancelled: `gameday reap` undoes it", ExitCode.UNKNOWN
        ) from None


def _print_how_to(
    out: Console, password_file: Path | None, reports: str, done: Registered, profile: str, notify: str | None
) -> None:
    from gameday.processes.ports import PREFECT_PORT, REPORTS_PORT

    pages = os.environ["PREFECT_API_URL"].removesuffix("/api")
    # Your own server may have any port.
    usual = ((pages, PREFECT_PORT), (reports.removesuffix("/"), REPORTS_PORT)) if password_file else ()
    moved = [
        f"  port {port} is taken, so {url} is used: bookmarks and links of earlier runs do not lead here"
        for url, port in usual
        if not url.endswith(f":{port}")
    ]
    lines = [
        f"Prefect's pages: {pages}",
        *moved,
        *([f"  password:    they ask for what {shlex.quote(str(password_file))} holds"] if password_file else []),
        f"  run one:     {pages}/deployments, then 'game-day (breaks one GPU)', Run",
        f"  deployments: {', '.join(done.names)}",
        *(f"  {line}" for line in (*done.kept, *([_KEPT] if done.kept else ()))),
        f"  cluster:     {shlex.quote(profile)}",
        *([] if notify else [_NO_NOTIFICATIONS]),
        "Ctrl-C ends all of it; what still runs is undone first.",
    ]
    out.print("\n".join(lines), soft_wrap=True)
