"""The first process in a real node's namespaces: its mounts and network, and then the end of orphaned processes.

`python -m gameday_rehearsal.lab.real_node.inside FOLDER` prints one JSON line when the node is set up; its process id,
as the machine knows it, is in FOLDER.
The node has the machine's file system, except for /var/lib and /var/log, which are in FOLDER, and /run. What kubelet
would write into the machine's sysctls (pkg/kubelet/cm, setupKernelTunables), such as a restart 10 s after an oops, goes
into files that lie over them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from gameday_rehearsal.lab.real_node.namespaces import PID
from gameday_rehearsal.lab.real_node.network import API_SERVER, DNS, NODE, REAL_NODE

_TUNABLES = (
    "kernel/keys/root_maxbytes",
    "kernel/keys/root_maxkeys",
    "kernel/panic",
    "kernel/panic_on_oops",
    "vm/overcommit_memory",
    "vm/panic_on_oom",
)


def main() -> None:
    """Set up the node and reap what is left without a parent, forever."""
    folder = Path(sys.argv[1])
    pid = int(Path("/proc/self").readlink().name)  # of the machine's /proc, which is about to be covered
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    _mount(folder)
    _connect()
    socket.sethostname(REAL_NODE)
    (folder / PID).write_text(f"{pid}\n")
    print(json.dumps({"ready": True}), flush=True)
    while True:
        signal.sigwait({signal.SIGCHLD})
        _reap()


def _mount(folder: Path) -> None:
    _run("mount", "--make-rshared", "/")  # within the namespace: pods' mounts have to reach containers
    _run("mount", "-t", "proc", "proc", "/proc")
    for place in ("/var/lib", "/var/log"):
        source = folder / place.strip("/").replace("/", "-")
        source.mkdir(mode=0o755, parents=True, exist_ok=True)
        _run("mount", "--bind", str(source), place)
    _run("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run")
    for number, name in enumerate(_TUNABLES):
        tunable, cover = Path("/proc/sys") / name, Path(f"/run/sysctl-{number}")
        if tunable.exists():
            cover.write_text(tunable.read_text())
            _run("mount", "--bind", str(cover), str(tunable))


def _connect() -> None:
    """Give the node its address, on a bridge without ports, and those on which gateway and CoreDNS listen."""
    _run("ip", "link", "add", "eth0", "type", "bridge")
    _run("ip", "address", "add", f"{NODE}/32", "dev", "eth0")
    for address in (API_SERVER, DNS):
        _run("ip", "address", "add", f"{address}/32", "dev", "lo")
    for device in ("lo", "eth0"):
        _run("ip", "link", "set", device, "up")


def _run(*argv: str) -> None:
    subprocess.run(argv, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
