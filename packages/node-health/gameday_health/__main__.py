"""`python -m gameday_health`: the node-health controller as its own process."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
import threading
from datetime import timedelta
from pathlib import Path
from types import FrameType

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from gameday.cluster.alert_receiver import ReceiverOptions
from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.lease import LONGEST_S, Lease
from gameday.cluster.loki import LogStore
from gameday.cluster.metrics_server import serve_metrics
from gameday.cluster.profile import KERNEL_LOG_SELECTOR, Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError, DocumentError, LeaseLostError
from gameday_health.api import connect
from gameday_health.controller import Controller
from gameday_health.leading import CLAIM_DURATION, LEADING_CONTROLLER, Lead, holder_name
from gameday_health.metrics import LeadMetrics, Metrics
from gameday_health.model import Taint
from gameday_health.policy_files import DEFAULT, load_policy
from gameday_health.sources.build import Servers, require_servers
from gameday_health.worker import Options

_USAGE = 64  # EX_USAGE of sysexits.h, like the command line's own
_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LEAD_LOST = 75  # EX_TEMPFAIL of sysexits.h: a process started again waits for the lead


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, format="health: %(levelname)s %(message)s")
    # The library logs each refused tail with the traceback of its handshake; the follower already logs the reason.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        return _run(arguments)
    except LeaseLostError as error:
        _report(error)
        return _LEAD_LOST
    except (AdapterError, DocumentError, ValueError, OSError) as error:
        _report(error.errors()[0]["msg"] if isinstance(error, ValidationError) else error)
        return _USAGE


def _report(problem: object) -> None:
    print(f"gameday_health: {problem}", file=sys.stderr, flush=True)


def _run(arguments: argparse.Namespace) -> int:
    options, servers = _options(arguments), _servers(arguments)
    require_servers(options.policy, servers)
    lead = _lead(arguments) if arguments.leader_election else None
    api = connect(arguments.kubeconfig, arguments.namespace, *([lead.check] if lead else []))
    registry = CollectorRegistry()
    port = serve_metrics(registry, arguments.metrics_address, arguments.metrics_port)
    lead_metrics = LeadMetrics(registry)
    metrics_url = f"http://{arguments.metrics_address}:{port}/metrics"
    stopping = threading.Event()
    controller: Controller | None = None

    def stop(_signal: int, _frame: FrameType | None) -> None:
        stopping.set()
        if controller:
            controller.stop()

    def show(state: str) -> None:
        print(json.dumps({state: True, "metrics": metrics_url}), flush=True)

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if lead and not lead.wait(stopping, lambda: show("standby")):
        return 0
    try:
        lead_metrics.leads.set(1)
        controller = Controller(api, servers, options, Metrics(registry), lambda: show("ready"))
        if not stopping.is_set():
            controller.run()
    finally:
        if lead:
            lead.release()
    return 0


def _lead(arguments: argparse.Namespace) -> Lead:
    def end(error: LeaseLostError) -> None:
        _report(error)
        # Not by an exception: no thread may do anything more, and one of them may be waiting for the API server.
        os._exit(_LEAD_LOST)

    # A client of its own, so that a renewal never waits behind the writes to nodes.
    claims = connect(arguments.kubeconfig, arguments.namespace)
    duration = timedelta(seconds=arguments.claim_seconds)
    return Lead(Lease(claims, LEADING_CONTROLLER, holder_name(), duration), end)


def _options(arguments: argparse.Namespace) -> Options:
    return Options(
        policy=load_policy(arguments.policy).policy,
        taint=Taint.parse(arguments.taint),
        log_selector=arguments.log_selector,
        node_label=arguments.node_label,
        namespace=arguments.namespace,
    )


def _servers(arguments: argparse.Namespace) -> Servers:
    endpoint = Endpoint(
        url=arguments.loki_url,
        bearer_token_file=arguments.loki_token_file,
        ca_file=arguments.loki_ca_file,
        tenant=arguments.loki_tenant,
    )
    prometheus = _endpoint(arguments.prometheus_url, arguments.prometheus_token_file)
    alertmanager = _endpoint(arguments.alertmanager_url, arguments.alertmanager_token_file)
    return Servers(
        logs=LogStore(endpoint),
        prometheus=Prometheus(prometheus) if prometheus else None,
        alertmanager=Alertmanager(alertmanager) if alertmanager else None,
        webhook=_webhook(arguments),
        node_label=arguments.node_label,
        namespace_label=arguments.namespace_label,
    )


def _endpoint(url: str | None, token_file: Path | None) -> Endpoint | None:
    return Endpoint(url=url, bearer_token_file=token_file) if url else None


def _webhook(arguments: argparse.Namespace) -> ReceiverOptions | None:
    if arguments.alert_port is None:
        return None
    if arguments.alert_token_file is None and arguments.alert_address not in _LOOPBACK:
        raise ValueError(
            f"--alert-address {arguments.alert_address} is open to other machines: add --alert-token-file, with the "
            "token that Alertmanager shows"
        )
    return ReceiverOptions(arguments.alert_address, arguments.alert_port, arguments.alert_token_file)


def _seconds(text: str) -> int:
    """Parse a whole number of seconds, as a Lease has it."""
    if not text.isdecimal() or not 1 <= int(text) <= LONGEST_S:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of seconds from 1 to {LONGEST_S:g}")
    return int(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gameday_health", description="taint nodes whose kernel log shows a GPU fault"
    )
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's own service account")
    parser.add_argument("--loki-url", required=True)
    parser.add_argument("--loki-token-file", type=Path, help="file with a bearer token, read again for every request")
    parser.add_argument("--loki-ca-file", type=Path, help="PEM bundle to trust")
    parser.add_argument("--loki-tenant", help="X-Scope-OrgID")
    parser.add_argument("--metrics-port", type=int, default=0, help="0: any free port")
    parser.add_argument("--metrics-address", default="127.0.0.1", help="0.0.0.0 in a pod that Prometheus scrapes")
    parser.add_argument("--policy", default=DEFAULT, help="a shipped policy's name, or the path of a policy file")
    parser.add_argument("--taint", default="trainy.konduktor.ai/faulty=true:NoSchedule")
    parser.add_argument(
        "--log-selector",
        default=KERNEL_LOG_SELECTOR,
        help="LogQL stream selector of the kernel log; name the namespace, as its streams speak for the nodes",
    )
    parser.add_argument(
        "--node-label", default="k8s_node_name", help="the label by which the collector names a line's node"
    )
    parser.add_argument("--namespace-label", default="k8s_namespace_name", help="the label of a pod line's namespace")
    parser.add_argument("--prometheus-url", help="for the policy's metric rules")
    parser.add_argument("--prometheus-token-file", type=Path, help="file with a bearer token")
    parser.add_argument("--alertmanager-token-file", type=Path, help="file with a bearer token")
    parser.add_argument("--alertmanager-url", help="for the policy's alert rules: polled every 30 s")
    parser.add_argument("--alert-port", type=int, help="receive Alertmanager's webhook here: POST /alerts")
    parser.add_argument("--alert-address", default="127.0.0.1", help="0.0.0.0 in a pod")
    parser.add_argument(
        "--alert-token-file",
        type=Path,
        help="file with the bearer token that senders must show; on a loopback address it may be left out",
    )
    parser.add_argument("--namespace", default="gameday", help="namespace of checkpoint and Lease")
    parser.add_argument(
        "--leader-election", action="store_true", help="of several controllers one works (a Lease); the others stand by"
    )
    parser.add_argument(
        "--claim-seconds",
        type=_seconds,
        default=CLAIM_DURATION.seconds,
        help="with --leader-election: a Lease not renewed for so long is free; at most 600 (default: %(default)s)",
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
