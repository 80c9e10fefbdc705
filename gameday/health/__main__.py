"""`python -m gameday.health`: the node-health controller as its own process."""

from __future__ import annotations

import argparse
import json
import logging
import signal
import sys
from pathlib import Path
from types import FrameType

from prometheus_client import CollectorRegistry, start_http_server
from pydantic import ValidationError

from gameday.cluster.alertmanager import Alertmanager
from gameday.cluster.loki import LogStore
from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError, DocumentError
from gameday.health.api import Api
from gameday.health.controller import Controller
from gameday.health.metrics import Metrics
from gameday.health.model import Taint
from gameday.health.policy_files import DEFAULT, load_policy
from gameday.health.sources.alerts import WebhookOptions
from gameday.health.sources.build import Servers, require_servers
from gameday.health.worker import Options

_USAGE = 64  # sysexits.h EX_USAGE, as the command line's own


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level=logging.WARNING, format="health: %(levelname)s %(message)s")
    # The library logs each refused tail with a traceback of the handshake; the follower logs the reason already.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    logging.getLogger("urllib3").setLevel(logging.ERROR)
    try:
        return _run(arguments)
    except (AdapterError, DocumentError, ValueError, OSError) as error:
        what = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        print(f"gameday.health: {what}", file=sys.stderr)
        return _USAGE


def _run(arguments: argparse.Namespace) -> int:
    endpoint = Endpoint(
        url=arguments.loki_url,
        bearer_token_file=arguments.loki_token_file,
        ca_file=arguments.loki_ca_file,
        tenant=arguments.loki_tenant,
    )
    options = Options(
        policy=load_policy(arguments.policy).policy,
        taint=Taint.parse(arguments.taint),
        log_selector=arguments.log_selector,
        node_label=arguments.node_label,
        namespace=arguments.namespace,
    )
    prometheus = _endpoint(arguments.prometheus_url, arguments.prometheus_token_file)
    alertmanager = _endpoint(arguments.alertmanager_url, arguments.alertmanager_token_file)
    servers = Servers(
        logs=LogStore(endpoint),
        prometheus=Prometheus(prometheus) if prometheus else None,
        alertmanager=Alertmanager(alertmanager) if alertmanager else None,
        webhook=_webhook(arguments),
        node_label=arguments.node_label,
        namespace_label=arguments.namespace_label,
    )
    require_servers(options.policy, servers)
    api = Api(arguments.kubeconfig)
    registry = CollectorRegistry()
    server, _ = start_http_server(arguments.metrics_port, addr=arguments.metrics_address, registry=registry)
    ready = {"ready": True, "metrics": f"http://{arguments.metrics_address}:{server.server_port}/metrics"}
    controller = Controller(api, servers, options, Metrics(registry), lambda: print(json.dumps(ready), flush=True))

    def stop(_signal: int, _frame: FrameType | None) -> None:
        controller.stop()

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    controller.run()
    return 0


def _endpoint(url: str | None, token_file: Path | None) -> Endpoint | None:
    return Endpoint(url=url, bearer_token_file=token_file) if url else None


def _webhook(arguments: argparse.Namespace) -> WebhookOptions | None:
    if arguments.alert_port is None:
        return None
    return WebhookOptions(arguments.alert_address, arguments.alert_port, arguments.alert_token_file)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="gameday.health", description="taint nodes whose kernel log shows a GPU fault"
    )
    parser.add_argument("--kubeconfig", type=Path, help="default: the pod's own service account")
    parser.add_argument("--loki-url", required=True)
    parser.add_argument("--loki-token-file", type=Path, help="file with a bearer token, read anew for every request")
    parser.add_argument("--loki-ca-file", type=Path, help="PEM bundle to trust")
    parser.add_argument("--loki-tenant", help="X-Scope-OrgID")
    parser.add_argument("--metrics-port", type=int, default=0, help="0: any free port")
    parser.add_argument("--metrics-address", default="127.0.0.1", help="0.0.0.0 in a pod that Prometheus scrapes")
    parser.add_argument("--policy", default=DEFAULT, help="a shipped policy's name, or the path of a policy file")
    parser.add_argument("--taint", default="trainy.konduktor.ai/faulty=true:NoSchedule")
    parser.add_argument("--log-selector", default='{k8s_daemonset_name="dmesg"}', help="LogQL stream selector")
    parser.add_argument("--node-label", default="k8s_node_name", help="the label that names a line's node")
    parser.add_argument("--namespace-label", default="k8s_namespace_name", help="the label of a pod line's namespace")
    parser.add_argument("--prometheus-url", help="for the policy's metric rules")
    parser.add_argument("--prometheus-token-file", type=Path, help="file with a bearer token")
    parser.add_argument("--alertmanager-token-file", type=Path, help="file with a bearer token")
    parser.add_argument("--alertmanager-url", help="for the policy's alert rules: polled every 30 s")
    parser.add_argument("--alert-port", type=int, help="receive Alertmanager's webhook here: POST /alerts")
    parser.add_argument("--alert-address", default="127.0.0.1", help="0.0.0.0 in a pod")
    parser.add_argument("--alert-token-file", type=Path, help="file with the bearer token that senders must show")
    parser.add_argument("--namespace", default="gameday", help="namespace of the checkpoint's ConfigMap")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
