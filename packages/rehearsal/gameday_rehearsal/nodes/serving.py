"""A server of a node's process on loopback, for as long as a block."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def listening(app: web.Application, port: int, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve on loopback and yield the port. A client that leaves ends its request."""
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5, handler_cancellation=tls is not None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=tls).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()
