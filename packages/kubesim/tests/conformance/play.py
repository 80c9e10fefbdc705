"""Play a script against a server."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tests.kubesim.conformance.exchange import Client, Server
from tests.kubesim.conformance.golden import summarize
from tests.kubesim.conformance.normal import normal
from tests.kubesim.conformance.scripts import Script


def play(server: Server, name: str, script: Script) -> list[dict[str, Any]]:
    """Play a script in a namespace named for it, and return the normalised exchanges with their requests summarized."""
    with closing(Client(server, f"conformance-{name.replace('_', '-')}")) as client:
        client.namespace(client.ns)
        script(client)
        exchanges = normal(client.exchanges, server.url, client.ns)
    return [{**exchange, "request": summarize(exchange["request"])} for exchange in exchanges]
