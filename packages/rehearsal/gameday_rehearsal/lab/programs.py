"""The choice of control-plane programs: the user's own if they fit, else those that `make lab` built.

This module imports only the standard library, because `scripts/build_lab.py` uses it before there is a virtual
environment.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from gameday.errors import ProgramMissingError
from gameday.shipped import checkout
from gameday_rehearsal.programs import TOOLS, find_program, install_hint

MODULES: Mapping[str, tuple[str, ...]] = {
    "etcd": ("etcd",),
    "kubernetes": ("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
    "coredns": ("coredns",),
    "topology": ("kube-scheduler-topology",),
}
"""The programs that each Go module below `lab/` builds; the lab needs `coredns` only for a real node, and
`topology` for plans that ask for it."""

NODE_PROGRAMS = ("kubelet", "kube-proxy")
"""The programs of `lab/kubernetes` that only a real node runs."""

BUILD_BY: Mapping[str, str] = {"topology": "make lab-topology"}
"""The command that builds a module's programs, for modules that `make lab` leaves out."""

BALANCER = "haproxy"
"""The program in front of several API servers; it comes from the system and not from `lab/`."""

# The oldest releases that the lab supports. etcd 3.4 and 3.5 answer Kubernetes' consistent reads differently; only 2.6
# of HAProxy was tried; CoreDNS 1.11 is Kubernetes 1.30's.
_OLDEST = {
    "etcd": (3, 6),
    BALANCER: (2, 6),
    "coredns": (1, 11),
    **dict.fromkeys((*MODULES["kubernetes"], *MODULES["topology"], *NODE_PROGRAMS), (1, 35)),
}
# Kubernetes' version skew policy: not newer than the API server, and at most one minor release older.
_SKEW = 1
_VERSION_WITHIN_S = 20.0
_SAID = re.compile(r"(?:Kubernetes v|etcd Version: |HAProxy version |CoreDNS-)(\d+)\.(\d+)\.(\S+)")


@dataclass(frozen=True)
class Program:
    """A program file and the version that it reports: `(major, minor, patch with any suffix)`."""

    path: Path
    version: tuple[int, int, str]

    @property
    def minor(self) -> tuple[int, int]:
        return self.version[:2]

    @property
    def release(self) -> str:
        return "v{}.{}.{}".format(*self.version)

    def __str__(self) -> str:
        return f"{self.path} ({self.release})"


def find_programs() -> dict[str, Program]:
    """Find etcd and the three components by name, in PATH, KUBEBUILDER_ASSETS or the tool folder, in that order.

    Raises ProgramMissingError, which says what was found and what to do.
    """
    folders = [*users_folders(), TOOLS / "bin"]
    return {**find_module("etcd", folders), **find_module("kubernetes", folders)}


def find_balancer() -> Program:
    """Find HAProxy. If it is missing or too old, raise ProgramMissingError, which says what to do."""
    path = find_program(BALANCER)
    program = _ask_version(path)
    why = _unfit(BALANCER, program, None) if program else "does not say its version"
    if program is None or why:
        raise ProgramMissingError(f"{program or path} {why}: {install_hint(BALANCER)}")
    return program


def find_api_server(release: str) -> Program:
    """Find the API server of another minor release, a program named like `kube-apiserver-1.32`.

    Raises ProgramMissingError with the command that builds it.
    """
    name = f"{MODULES['kubernetes'][0]}-{release}"
    for folder in (*users_folders(), TOOLS / "bin"):
        path = folder.absolute() / name
        program = _ask_version(path) if _is_program(path) else None
        if program and program.release.startswith(f"v{release}."):
            return program
    raise ProgramMissingError(
        f"the plan wants API servers of Kubernetes {release}, and no {name} of that release is on PATH, in"
        f" KUBEBUILDER_ASSETS or in {TOOLS / 'bin'}: run `make lab-release VERSION={release}` in the project's checkout"
    )


def find_node_programs(apiserver: Program) -> dict[str, Program]:
    """Find kubelet, kube-proxy and CoreDNS, of which the former fit an API server.

    Raises ProgramMissingError, which says what was found and what to do.
    """
    folders, passed_over = [*users_folders(), TOOLS / "bin"], dict[str, None]()
    found = find_module("coredns", folders)
    for name in NODE_PROGRAMS:
        program = next(_fitting(name, folders, apiserver, passed_over), None)
        if program is None:
            raise _missing([name], "make lab", passed_over)
        found[name] = program
    return found


def find_topology_scheduler(apiserver: Program) -> Program:
    """Find a topology-aware scheduler that fits an API server.

    Raises ProgramMissingError, which says what was found and what to do.
    """
    folders, passed_over = [*users_folders(), TOOLS / "bin"], dict[str, None]()
    (name,) = MODULES["topology"]
    for program in _fitting(name, folders, apiserver, passed_over):
        return program
    raise _missing(MODULES["topology"], BUILD_BY["topology"], passed_over)


def users_folders() -> list[Path]:
    """Return the folders of PATH and KUBEBUILDER_ASSETS, without the project's own tool folder."""
    named = [*os.environ.get("PATH", os.defpath).split(os.pathsep), os.environ.get("KUBEBUILDER_ASSETS", "")]
    own = (TOOLS / "bin").resolve()
    return [folder for folder in map(Path, filter(None, dict.fromkeys(named))) if folder.resolve() != own]


def find_module(module: str, folders: Sequence[Path]) -> dict[str, Program]:
    """Return the first programs of a module in the folders that fit, also each other. Raises ProgramMissingError."""
    leading, *others = MODULES[module]
    passed_over: dict[str, None] = {}
    for leader in _fitting(leading, folders, None, passed_over):
        found = {leading: leader}
        for name in others:
            if follower := next(_fitting(name, folders, leader, passed_over), None):
                found[name] = follower
            else:
                passed_over[f"no {name} that goes with {leader}"] = None
        if len(found) == len(MODULES[module]):
            return found
    raise _missing(MODULES[module], BUILD_BY.get(module, "make lab"), passed_over)


def _missing(names: Sequence[str], command: str, passed_over: Mapping[str, None]) -> ProgramMissingError:
    seen = f" ({'; '.join(passed_over)})" if passed_over else ""
    searched, build = (
        (f"on PATH, in KUBEBUILDER_ASSETS or in {TOOLS / 'bin'}", f"run `{command}`, which builds it")
        if checkout()
        else ("on PATH or in KUBEBUILDER_ASSETS", f"put it there; `{command}` in a checkout of the project builds it")
    )
    return ProgramMissingError(f"the lab needs {', '.join(names)}, and none that fits is {searched}{seen}: {build}")


def _fitting(
    name: str, folders: Sequence[Path], apiserver: Program | None, passed_over: dict[str, None]
) -> Iterator[Program]:
    """Yield the programs of this name that fit; put the reasons against the others into `passed_over`."""
    for folder in folders:
        path = folder.absolute() / name
        if not _is_program(path):
            continue
        program = _ask_version(path)
        if program is None:
            passed_over[f"{path} does not say its version"] = None
        elif why := _unfit(name, program, apiserver):
            passed_over[f"{program} {why}"] = None
        else:
            yield program


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


@cache
def _ask_version(path: Path) -> Program | None:
    try:
        said = subprocess.run(
            [path, "-v" if path.name == BALANCER else "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_VERSION_WITHIN_S,
            check=False,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = _SAID.search(said)
    return Program(path, (int(match[1]), int(match[2]), match[3])) if match else None


def _unfit(name: str, program: Program, apiserver: Program | None) -> str:
    if program.minor < _OLDEST[name]:
        return "is older than {}.{}".format(*_OLDEST[name])
    if apiserver and not (
        program.minor[0] == apiserver.minor[0] and 0 <= apiserver.minor[1] - program.minor[1] <= _SKEW
    ):
        return f"does not go with {apiserver}"
    return ""
