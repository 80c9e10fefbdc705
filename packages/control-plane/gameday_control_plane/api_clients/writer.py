"""A writer that changes a load's objects one after the other, at a steady rate."""

from __future__ import annotations

import base64
import threading
import time

import orjson

from gameday.api_clients.connection import tls_context
from gameday.api_clients.exchange import Exchange, Failed
from gameday.host.base import ApiServer
from gameday_control_plane.api_clients.lists import NAMESPACE
from gameday_control_plane.api_clients.objects import object_name
from gameday_control_plane.values.api_loads import Write

_ACCEPT = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_STRIDE = 7919
"""A prime, so that successive writes change objects far apart, and each object once before any a second time."""


class Writer:
    """A writer. Only `end` may be called from another thread than `run`; read the results after it."""

    def __init__(self, server: ApiServer, resource: str, load: str, objects: int, rate: float) -> None:
        """Prepare a writer.

        Args:
            server: The API server.
            resource: Plural of a resource of the core group.
            load: The objects' load.
            objects: Their number.
            rate: Changes a second; fewer if an answer takes longer than the time between two.

        Raises:
            HostError: The authority of the API server cannot be read.
        """
        self._exchange = Exchange(server, tls_context(server))
        self._path = f"/api/v1/namespaces/{NAMESPACE}/{resource}"
        self._load = load
        self._objects = objects
        self._rate = rate
        self._ended = threading.Event()
        self.writes: list[Write] = []
        self.failed = 0

    def run(self, seconds: float) -> None:
        """Change objects for this long, or until `end` is called."""
        began = time.monotonic()
        for number in range(int(seconds * self._rate)):
            if self._ended.wait(max(0.0, began + number / self._rate - time.monotonic())):
                return
            if time.monotonic() - began > seconds:
                return
            self._write(number)

    def end(self) -> None:
        """End it, even in mid-request."""
        self._ended.set()
        self._exchange.end()

    def _write(self, number: int) -> None:
        name = object_name(self._load, number * _STRIDE % self._objects)
        change = {"data": {"change": base64.b64encode(str(number).encode()).decode()}}
        try:
            answer = self._exchange.ask(
                "PATCH",
                f"{self._path}/{name}",
                accept=_ACCEPT,
                body=orjson.dumps(change),
                content_type="application/merge-patch+json",
            )
            version = int(orjson.loads(answer)["metadata"]["resourceVersion"])
        except (Failed, ValueError, KeyError, TypeError):
            self.failed += 1
            return
        self.writes.append(Write(name=name, version=version, at=round(time.monotonic(), 6)))
