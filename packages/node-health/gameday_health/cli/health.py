"""`gameday health explain | repair | status`: the node-health controller's decisions, and the repairs after a taint."""

from __future__ import annotations

import json
import logging
import signal
import threading
from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.console import console
from gameday.cli.game_day import Profile
from gameday.cli.help_page import HelpGroup, Panel, add_command
from gameday.errors import AdapterError, CommandError, ProfileError
from gameday.exit_codes import ExitCode
from gameday_health.cli.explain import explain
from gameday_health.episodes import DEFAULT_TAINT

if TYPE_CHECKING:
    from gameday_health.episodes.work import Settings

PolicyName = Annotated[
    str,
    typer.Option("--policy", help="default, konduktor, conservative, or a policy file. Its section `repair` is used."),
]
TaintOption = Annotated[str, typer.Option(help="The node-health controller's taint.")]


def register(app: typer.Typer) -> None:
    """Add the commands of the node-health controller."""
    health = typer.Typer(
        cls=HelpGroup,
        help="Explain the controller's decisions, repair quarantined nodes, show each repair.",
        no_args_is_help=True,
    )
    add_command(health, explain, "dmesg | gameday health explain -")
    add_command(health, repair, "gameday health repair --profile cluster.yaml")
    add_command(health, status, "gameday health status --profile cluster.yaml")
    app.add_typer(health, name="health", rich_help_panel=Panel.CLUSTER)


def repair(
    profile: Profile = None,
    policy: PolicyName = "default",
    taint: TaintOption = DEFAULT_TAINT,
    metrics_port: Annotated[int, typer.Option(min=0, max=65535, help="Port of /metrics; 0: any free port.")] = 0,
    metrics_address: Annotated[str, typer.Option(help="0.0.0.0 in a pod that Prometheus scrapes.")] = "127.0.0.1",
) -> int:
    """Repair every node that the node-health controller quarantines, each in a Prefect flow run, until Ctrl-C.

    Several can run at the same time: one works, and another takes over when it dies.
    """
    from prometheus_client import CollectorRegistry

    from gameday.cli.prefect_client import give_events_up_at_once, prefect_server, set_defaults
    from gameday.cluster.kubernetes import Kubernetes
    from gameday.cluster.metrics_server import serve_metrics
    from gameday_health.episodes.metrics import RepairMetrics
    from gameday_health.episodes.repairer import Repairer

    set_defaults()
    logging.basicConfig(level=logging.WARNING, format="repair: %(levelname)s %(message)s")
    settings = _settings(profile, policy, taint)

    def work_off(node: str, episode: str) -> None:
        from prefect import tags  # seconds, which nothing but an episode has to wait for

        from gameday.flows.server_turns import TURNS
        from gameday_health.flow import ENDS, remediate_node

        give_events_up_at_once()
        with TURNS.turn(), tags("gameday-repair", episode):
            state = remediate_node(
                node=node,
                profile=profile,
                policy=policy,
                taint=taint,
                return_state=True,
            )
        if state.result(raise_on_failure=False) not in ENDS:
            state.result()  # raises the error that broke it off

    registry = CollectorRegistry()
    try:
        port = serve_metrics(registry, metrics_address, metrics_port)
        kubernetes = Kubernetes(settings.profile)
    except (AdapterError, OSError) as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    repairer = Repairer(settings, kubernetes, work_off, RepairMetrics(registry))
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: repairer.stop())
    ready = {"ready": True, "metrics": f"http://{metrics_address}:{port}/metrics"}
    try:
        with prefect_server(console()):
            # Prefect loads for seconds; the first episode must not wait for that.
            threading.Thread(target=_load_flow, name="import", daemon=True).start()
            repairer.run(lambda: print(json.dumps(ready), flush=True))
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    finally:
        kubernetes.close()
    return ExitCode.PASSED


def _load_flow() -> None:
    with suppress(Exception):  # the first episode imports it again, and gets the error
        import_module("gameday_health.flow")


def status(profile: Profile = None, policy: PolicyName = "default", taint: TaintOption = DEFAULT_TAINT) -> int:
    """Show every node with a repair: its state, since when, the evidence, the rung, and what comes next."""
    from rich.table import Table

    from gameday.cluster.kubernetes import Kubernetes
    from gameday_health.episodes.api import RepairApi
    from gameday_health.episodes.status import status as rows_of

    settings = _settings(profile, policy, taint)
    try:
        kubernetes = Kubernetes(settings.profile)
        rows = rows_of(RepairApi(kubernetes), settings, datetime.now(UTC))
        kubernetes.close()
    except AdapterError as error:
        raise CommandError(str(error), ExitCode.REFUSED) from None
    if not rows:
        typer.echo("no node has been repaired, and none is being repaired")
        return ExitCode.PASSED
    table = Table("node", "state", "since", "evidence", "rung", "next")
    for row in rows:
        since = row.since.astimezone().strftime("%Y-%m-%d %H:%M:%S")
        table.add_row(row.node, row.state, since, row.evidence, row.rung, row.next)
    console().print(table)
    return ExitCode.PASSED


def _settings(profile: str | None, policy: str, taint: str) -> Settings:
    from gameday.cluster.profile import load_profile
    from gameday_health.episodes.work import Settings
    from gameday_health.model import Taint
    from gameday_health.policy_files import load_policy

    try:
        return Settings(load_profile(profile), load_policy(policy).policy.repair, Taint.parse(taint))
    except (ProfileError, ValueError) as error:
        raise CommandError(str(error)) from None
