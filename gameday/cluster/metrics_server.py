"""Prometheus metrics of one of our processes, on its own port."""

from __future__ import annotations

import threading

from prometheus_client import CollectorRegistry, MetricsHandler

from gameday.cluster.quiet_http import QuietHandler, QuietServer


class _Handler(QuietHandler, MetricsHandler):
    """A handler with a limit of threads and a timeout, which the library's own server lacks."""


def serve_metrics(registry: CollectorRegistry, address: str, port: int) -> int:
    """Serve a registry's metrics until the process ends, and return the port.

    Args:
        registry: The metrics.
        address: The address to listen on.
        port: 0: any free one.

    Raises:
        OSError: The port cannot be bound.
    """
    server = QuietServer((address, port), _Handler.factory(registry))
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server.server_port
