"""The app of a Prefect server on SQLite that answers to this machine's name only, with a thread for its garbage.

A web page can give its own name the address 127.0.0.1 once it is loaded (DNS rebinding); a browser then takes our
server for that page's own. Only the Host header tells.

Python collects cycles in whichever thread allocates. In the event loop's thread the collector met cursors of
connections that waited for the database's one writer: `sqlite3_reset` waits for such a connection's mutex, the loop for
the collector, and the writer, whose transaction the loop is to end, for the loop. Nothing moved until SQLite gave up
after the 60 s that Prefect sets (`busy_timeout`): seen with Prefect 3.8.8 and Python 3.11 by py-spy, where 20 flow runs
and more began or ended at once (docs/measured.md, A storm). In a thread of its own the wait holds up nothing, because
sqlite3 lets go of the interpreter's lock in it (CPython 3.11, Modules/_sqlite/cursor.c, stmt_reset).
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
"""Collections of a generation for one of the next older one: Python's own threshold."""
_READABLE = 0o022
"""The umask while Prefect copies its pages to beside its code, where the servers of other users read them."""
_NAMES = ("127.0.0.1", "localhost")
"""The Host headers that are answered, with any port: a tunnel may end at another one."""


def create_app() -> ASGIApp:
    """Return Prefect's app, and collect this process's garbage in a thread from now on."""
    from prefect.server.api.server import create_app as app_of_prefect  # noqa: PLC0415 - seconds
    from starlette.middleware.trustedhost import TrustedHostMiddleware  # noqa: PLC0415 - as long

    gc.disable()
    private = os.umask(_READABLE)
    app = app_of_prefect()
    os.umask(private)
    gc.freeze()  # modules and models, which stay for as long as the process
    threading.Thread(target=collect_until, args=(threading.Event(),), name="garbage", daemon=True).start()
    # Around the app, not in it: Prefect's own services call the app in memory, under another name.
    return TrustedHostMiddleware(app, allowed_hosts=_NAMES)


def collect_until(ended: threading.Event) -> None:
    """Run the collector until `ended` is set: on young objects each time, on older ones more seldom."""
    for collection in count(1):
        if ended.wait(_EVERY_S):
            return
        is_older = [collection % _OLDER_EVERY**power == 0 for power in (1, 2)]
        gc.collect(sum(is_older))
