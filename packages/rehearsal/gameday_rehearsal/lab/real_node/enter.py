"""`python -m gameday_rehearsal.lab.real_node.enter FOLDER PROGRAM [ARGUMENT]...`: a program in a real node.

A program can enter a PID namespace only as a new process, so this one stays its parent, with its exit status and in
its process group: a signal to the group reaches both. When this process dies, so does the program.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.lab.real_node.namespaces import first_process, join


def main() -> int:
    """Start the program and wait for it; its exit status."""
    folder, *argv = sys.argv[1:]
    try:
        join(first_process(Path(folder)), ("ipc", "uts", "net", "pid", "mnt"))
    except (OSError, ValueError) as error:
        print(f"the node in {folder} does not run just now: {error}", file=sys.stderr)
        return 1
    child = os.fork()
    if child == 0:
        die_with_parent(signal.SIGKILL)
        os.umask(0o022)  # as a service manager starts it: containers' users must be able to read their files
        try:
            os.execvp(argv[0], argv)  # noqa: S606 - no shell
        except OSError as error:
            print(f"{argv[0]}: {error.strerror}", file=sys.stderr, flush=True)
            os._exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF


if __name__ == "__main__":
    sys.exit(main())
