"""The load balancer in front of several API servers: HAProxy, which forwards TCP and sees no request."""

from __future__ import annotations

import json
from pathlib import Path

from gameday_rehearsal.lab.components import Component, Ports
from gameday_rehearsal.lab.programs import BALANCER
from gameday_rehearsal.lab.settings import LabSettings, server_name

BACKEND = "kube-apiservers"
"""Name of the backend, the label `proxy` of HAProxy's metrics; the label `server` is an API server's name."""

# As in kubeadm's guide to highly available clusters: TCP, each server checked by HTTPS
# (https://github.com/kubernetes/kubeadm/blob/main/docs/ha-considerations.md). It checks every 10 s; here a server that
# came back is used again within a second. A connection that a server refuses goes to another at once.
_CONFIG = """\
global
    maxconn 8000
    no strict-limits
    hard-stop-after 1s

defaults
    mode tcp
    timeout connect 2s
    timeout client 1h
    timeout server 1h
    timeout check 5s
    retries 3
    option redispatch 1

frontend kubernetes
    bind 127.0.0.1:{port}
    default_backend {backend}

backend {backend}
    balance {balance}
    option httpchk GET /readyz
    http-check expect status 200
    default-server check check-ssl verify required ca-file {ca} inter 1s fastinter 200ms fall 2 rise 1
{servers}

frontend metrics
    mode http
    bind 127.0.0.1:{metrics_port}
    monitor-uri /ready
    acl none_is_up nbsrv({backend}) lt 1
    monitor fail if none_is_up
    http-request use-service prometheus-exporter if {{ path /metrics }}
"""


def config_text(ports: Ports, settings: LabSettings, ca: Path) -> str:
    """Return HAProxy's configuration; it checks the API servers' certificates by the authority `ca`."""
    servers = "\n".join(
        f"    server {server_name(number)} 127.0.0.1:{port}" for number, port in enumerate(ports.servers, start=1)
    )
    return _CONFIG.format(
        port=ports.apiserver,
        metrics_port=ports.balancer_metrics,
        backend=BACKEND,
        balance=settings.balance.value,
        ca=_quoted(ca),
        servers=servers,
    )


def balancer(folder: Path, ports: Ports, settings: LabSettings, ca: Path) -> Component:
    """Write the configuration and return the program to start. It is ready while any API server is. Raises OSError."""
    config = folder / "haproxy.cfg"
    config.write_text(config_text(ports, settings, ca), encoding="utf-8")
    url = f"http://127.0.0.1:{ports.balancer_metrics}"
    return Component(BALANCER, BALANCER, ("-db", "-f", str(config)), {}, f"{url}/ready", f"{url}/metrics")


def _quoted(path: Path) -> str:
    r"""Return a path as one word of HAProxy's configuration: only `\`, `"` and `$` are special in double quotes."""
    return json.dumps(str(path), ensure_ascii=False).replace("$", "\\$")
