"""`gameday listen`: start a post-mortem, as a run in Prefect, for each resolved alert about a node."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gameday.cli.help_page import Panel, add_command
from gameday.errors import CommandError
from gameday.exit_codes import ExitCode
from gameday.text import printable

if TYPE_CHECKING:
    from prefect.client.orchestration import SyncPrefectClient
    from prefect.client.schemas.responses import DeploymentResponse

    from gameday.cluster.alert_receiver import ReceivedAlert
    from gameday.cluster.profile import ClusterProfile

DEPLOYMENT = "post-mortem/incident (read only)"
_NO_DEPLOYMENT = (
    f"the Prefect server has no deployment {DEPLOYMENT}: `gameday deploy --profile cluster.yaml` makes it, "
    f"and with --reset '{DEPLOYMENT}' also one that somebody has deleted"
)
_PORT = 9099
_BEFORE = timedelta(minutes=10)
"""The most by which an alert begins after its cause, from the rules' `for`: 10 minutes in all shipped ones but one."""
_NODE_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
"""A Kubernetes node's name: an RFC 1123 subdomain of 253 characters at most."""
_FINGERPRINT = re.compile(r"[0-9a-f]{16}")
"""Alertmanager's: 64 bits, in hexadecimal."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_command(
        app, listen, "gameday listen --token-file alert-token --profile cluster.yaml", panel=Panel.AFTER, name="listen"
    )


def listen(
    token_file: Annotated[
        Path,
        typer.Option(help="File with the bearer token that Alertmanager sends. It is read again for each request."),
    ],
    profile: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|block:NAME",
            help="Profile of the cluster that the alerts are about. `gameday deploy` must know it.",
        ),
    ] = None,
    address: Annotated[
        str, typer.Option(help="Address to listen on. 0.0.0.0 means every address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on. 0 means any free port.")] = _PORT,
) -> int:
    """Receive resolved alerts from Alertmanager and start a post-mortem for each, until Ctrl-C.

    Name its address under `webhook_configs` of Alertmanager (docs/prefect.md). The deployment post-mortem/incident runs
    the post-mortems.
    """
    from gameday.cli.prefect_client import require_server, set_defaults
    from gameday.cluster.alert_receiver import AlertReceiver, ReceiverOptions
    from gameday.cluster.profile import load_profile, reachable

    set_defaults()
    _check_token(token_file)
    require_server()
    cluster = load_profile(profile)
    _require_deployment()
    starter = PostMortems(cluster, reachable(profile) if profile else None)
    try:
        receiver = AlertReceiver(ReceiverOptions(address, port, token_file), starter.take)
    except OSError as error:
        raise CommandError(
            f"cannot listen on {address}:{port}: {error.strerror}; give another --port", ExitCode.REFUSED
        ) from None
    ended = threading.Event()
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: ended.set())
    receiver.start()
    typer.echo(f"resolved alerts become runs of {DEPLOYMENT}: POST http://{address}:{receiver.port}/alerts")
    ended.wait()
    receiver.stop()
    return ExitCode.PASSED


def _check_token(file: Path) -> None:
    how = f"make one with `(umask 077; openssl rand -hex 32 > {file})`"
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise CommandError(f"--token-file {file} cannot be read: {why}; {how}") from None
    if not token:
        raise CommandError(f"--token-file {file} is empty; {how}")


def _require_deployment() -> None:
    import httpx
    from prefect.client.orchestration import get_client
    from prefect.exceptions import ObjectNotFound

    from gameday.cli.prefect_client import gone_message

    try:
        with get_client(sync_client=True) as client:
            client.read_deployment_by_name(DEPLOYMENT)
    except ObjectNotFound:
        raise CommandError(_NO_DEPLOYMENT, ExitCode.REFUSED) from None
    except httpx.HTTPError as error:
        if why := gone_message(error):
            raise CommandError(why, ExitCode.REFUSED) from None
        raise


@dataclass(frozen=True)
class Window:
    """The node and window of a post-mortem, from a resolved alert."""

    node: str
    start: datetime
    end: datetime
    key: str
    """The key of one firing of the alert: Prefect makes one run of it, however often it is sent."""


@dataclass(frozen=True)
class PostMortems:
    """The post-mortem runs that alerts start."""

    cluster: ClusterProfile
    profile: str | None
    """Path of the cluster profile, or block:NAME; None: the deployment's."""

    def take(self, alerts: Sequence[ReceivedAlert]) -> bool:
        """Create a run for each resolved alert that names a node; return False if Prefect did not take one."""
        import httpx
        from prefect.client.orchestration import get_client
        from prefect.exceptions import ObjectNotFound

        wanted = [window for alert in alerts if (window := window_of(alert, self.cluster))]
        # Alerts of one node that began and ended together are one incident, and its folder is collected once.
        incidents = {(one.node, one.start, one.end): one for one in wanted}
        if not incidents:
            return True
        try:
            with get_client(sync_client=True) as client:
                # By name each time, because a deployment that is deleted and made again has another id.
                deployment = client.read_deployment_by_name(DEPLOYMENT)
                for one in incidents.values():
                    typer.echo(self._create(client, deployment, one))
        except ObjectNotFound:
            typer.echo(f"{_NO_DEPLOYMENT}; Alertmanager sends the alerts again", err=True)
            return False
        except httpx.HTTPError as error:
            typer.echo(f"Prefect did not take a run ({printable(str(error))}); Alertmanager sends it again", err=True)
            return False
        return True

    def _create(self, client: SyncPrefectClient, deployment: DeploymentResponse, window: Window) -> str:
        parameters = {"node": window.node, "start": window.start.isoformat(), "end": window.end.isoformat()}
        names = {source: name for name, source in deployment.parameters.get("profiles", {}).items()}
        cluster = {"profile": names.get(self.profile, self.profile)} if self.profile else {}
        run = client.create_flow_run_from_deployment(
            deployment.id,
            parameters=parameters | cluster,
            idempotency_key=window.key,
            tags=["alert"],
        )
        return f"post-mortem of {window.node}, {parameters['start']} to {parameters['end']}: flow run {run.id}"


def window_of(alert: ReceivedAlert, cluster: ClusterProfile) -> Window | None:
    """Return the window of an alert, or None if it still fires, names no node, or has unreadable times.

    Args:
        alert: The alert, which is text from outside.
        cluster: The profile, which names the labels that hold a node.
    """
    from gameday.post_mortem.times import LONGEST_WINDOW

    node = alert.labels.get(cluster.alert_node_label) or alert.labels.get(cluster.prometheus_node_label) or ""
    if alert.status != "resolved" or alert.ends_at is None or alert.ends_at <= alert.starts_at:
        return None
    if not _NODE_NAME.fullmatch(node) or not _FINGERPRINT.fullmatch(alert.fingerprint):
        return None
    try:
        start = alert.starts_at - _BEFORE
    except OverflowError:
        return None
    # Of a window that is too long, keep the beginning: it has the cause.
    end = min(alert.ends_at, start + LONGEST_WINDOW)
    return Window(node, start, end, f"alert-{alert.fingerprint}-{alert.starts_at.isoformat()}")
