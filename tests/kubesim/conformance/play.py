"""Plays a script against a server and hands back the recording."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from tests.kubesim.conformance.exchange import Client, Server
from tests.kubesim.conformance.normal import normal
from tests.kubesim.conformance.scripts import Script


def play(server: Server, name: str, script: Script) -> list[dict[str, Any]]:
    """The normalised exchanges of one run, in a namespace named for the script."""
    with closing(Client(server, f"conformance-{name.replace('_', '-')}")) as client:
        client.namespace(client.ns)
        script(client)
        return normal(client.exchanges, server.url)
