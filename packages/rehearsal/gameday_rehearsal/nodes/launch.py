"""`python -m gameday_rehearsal.nodes.launch MODULE [ARG…]`: run one container's process, which dies with its kubelet.

A wrapper instead of a pre-exec hook: it runs in the child after exec, so the kubelet's process, which may hold a
thousand nodes, is never copied by a fork.
"""

from __future__ import annotations

import runpy
import signal
import sys

from gameday.processes.lifeline import die_with_parent

if __name__ == "__main__":
    die_with_parent(signal.SIGKILL)
    _, module, *arguments = sys.argv
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
