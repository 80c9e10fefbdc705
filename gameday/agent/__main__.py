"""`python -m gameday.agent`: the container's process 1.

Signals are caught before any large module is imported: the kernel drops a SIGTERM to a process 1 without a handler, and
the pod would hang until it is killed. The task runs in a second thread, so that the handler never interrupts code that
waits for it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading


def main() -> int:
    """Run the agent, and return its exit status."""
    early: list[int] = []
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, lambda number, _: early.append(number))
    # Pydantic must not load plug-ins of the image's other packages into the privileged agent, nor spend time on them.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    from gameday.agent.context import Ending  # noqa: PLC0415
    from gameday.agent.run import run_agent  # noqa: PLC0415

    ending = Ending()
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, ending.by_signal)
    if early:
        ending.by_signal()
    status: list[int] = []
    worker = threading.Thread(target=lambda: status.append(run_agent(os.environ, ending)))
    worker.start()
    worker.join()
    # Python restores the default signal handling at exit; a late SIGTERM would then replace the exit status.
    for caught in (signal.SIGTERM, signal.SIGINT):
        signal.signal(caught, signal.SIG_IGN)
    return status[0] if status else 1


if __name__ == "__main__":
    sys.exit(main())
