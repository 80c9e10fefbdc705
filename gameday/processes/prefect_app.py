"""The app of a Prefect server on SQLite: it answers only to this machine's name, and collects garbage in a thread.

A web page can point its own name to 127.0.0.1 once it is loaded (DNS rebinding); a browser then takes our server for
that page's own. Only the Host header shows the difference.

Python collects cycles in any thread that allocates. In the event loop's thread the collector met cursors of
connections that waited for the database's one writer: `sqlite3_reset` waits for such a connection's mutex, the loop
for the collector, and the writer, which needs the loop to end its transaction, for the loop. Nothing moved until
SQLite gave up after the 60 s that Prefect sets (`busy_timeout`). We saw this with Prefect 3.8.8 and Python 3.11 by
py-spy, when 20 and more flow runs began or ended at once (docs/measured.md, A storm). In a thread of its own the wait
blocks nothing, because sqlite3 releases the interpreter's lock in it (CPython 3.11, Modules/_sqlite/cursor.c,
stmt_reset).
"""

from __future__ import annotations

import gc
import os
import threading
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_EVERY_S = 0.2
"""Seconds between two collections of young objects. Our own choice: a busy server makes some 10,000 in this time."""
_OLDER_EVERY = 10
"""Collections of a generation before one of the next older: Python's own threshold."""
_READABLE = 0o022
"""The umask while Prefect copies its pages to a place beside its code, where the servers of other users read them."""
_NAMES = ("127.0.0.1", "localhost")
"""Host headers that are answered, with any port, because a tunnel may end at another one."""


def create_app() -> ASGIApp:
    """Return Prefect's app, and from now on collect this process's garbage in a thread."""
    from prefect.server.api.server import create_app as app_of_prefect  # noqa: PLC0415 - seconds
    from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: PLC0415 - as long

    gc.disable()
    private = os.umask(_READABLE)
    app = app_of_prefect()
    os.umask(private)
    gc.freeze()  # modules and models, which stay as long as the process
    threading.Thread(target=collect_until, args=(threading.Event(),), name="garbage", daemon=True).start()
    # Around the app, not in it: Prefect's own services call the app in memory, under another name.
    return TrustedHostMiddleware(app, allowed_hosts=_NAMES)


def collect_until(ended: threading.Event) -> None:
    """Run the collector until `ended` is set: each time on young objects, less often on older ones."""
    for collection in count(1):
        if ended.wait(_EVERY_S):
            return
        is_older = [collection % _OLDER_EVERY**power == 0 for power in (1, 2)]
        gc.collect(sum(is_older))
