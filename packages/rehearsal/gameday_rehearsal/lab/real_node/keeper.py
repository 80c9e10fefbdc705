"""`python -m gameday_rehearsal.lab.real_node.keeper`: the namespaces of a real node, and the end of everything in them.

Their first process is the init of a PID namespace: when it dies, the kernel kills every process in there, and mounts,
network and host name go with the last one. Control groups do not, so this process stays outside and removes them, also
when the lab was killed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial
from pathlib import Path
from signal import SIGKILL

from gameday.processes.lifeline import die_with_parent
from gameday_rehearsal.lab.real_node import cgroups
from gameday_rehearsal.signals import broken_off_by_signals, ignore_signals

_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")


def main() -> int:
    """Keep the namespaces until a signal or the end of their first process; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m gameday_rehearsal.lab.real_node.keeper", description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="the node's /var/lib and /var/log")
    parser.add_argument("--cgroup", required=True, help="name of the node's control groups")
    chosen = parser.parse_args()
    # The namespaces' first process prints the ready line.
    inside = [sys.executable, "-m", "gameday_rehearsal.lab.real_node.inside", str(chosen.folder)]
    argv = ["unshare", "--kill-child", "--fork", "--propagation", "private", *_NAMESPACES, *inside]
    with broken_off_by_signals():
        die_with_parent()
        process: subprocess.Popen[bytes] | None = None
        try:
            cgroups.make(chosen.cgroup)
            process = subprocess.Popen(argv, preexec_fn=partial(die_with_parent, SIGKILL))  # noqa: PLW1509
            return process.wait()
        except OSError as error:
            print(f"real node: {error.filename}: {error.strerror}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            return 0
        finally:
            ignore_signals()
            if process:
                process.kill()
                process.wait()
            cgroups.remove(chosen.cgroup)


if __name__ == "__main__":
    sys.exit(main())
