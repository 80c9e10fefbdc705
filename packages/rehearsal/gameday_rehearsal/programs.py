"""The third-party programs that the project needs, where it looks for them, and how each system installs them.

This module imports only the standard library, because `scripts/setup.py` uses it before there is a virtual
environment.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from gameday.errors import ProgramMissingError
from gameday.shipped import checkout

TOOLS = Path(__file__).resolve().parents[3] / ".tools"
"""A checkout's tool folder, filled by `make setup`; its `bin` is searched after PATH."""


@dataclass(frozen=True)
class Wanted:
    """A program, its possible names, and the package that has it."""

    names: tuple[str, ...]
    debian: str
    others: dict[str, str]
    """Commands that install the program, by the ID of os-release."""
    fetched_by: str = "make setup"
    """The command that fetches the program into a checkout on Debian and Ubuntu, without root."""


def _named_everywhere(package: str) -> dict[str, str]:
    """Return the commands that install a package which has one name on all systems."""
    installs = {"fedora": "dnf install", "arch": "pacman -S", "alpine": "apk add", "opensuse": "zypper install"}
    return {system: f"{install} {package}" for system, install in installs.items()}


PROMETHEUS = {
    "fedora": "dnf install golang-github-prometheus",
    "arch": "pacman -S prometheus",
    "alpine": "apk add prometheus",
    "opensuse": "zypper install golang-github-prometheus-prometheus",
}
ALERTMANAGER = {
    "fedora": "dnf install golang-github-prometheus-alertmanager",
    "arch": "pacman -S alertmanager",
    "alpine": "apk add alertmanager",
    "opensuse": "zypper install golang-github-prometheus-alertmanager",
}
PROGRAMS: dict[str, Wanted] = {
    "prometheus": Wanted(("prometheus",), "prometheus", PROMETHEUS),
    "promtool": Wanted(("promtool",), "prometheus", PROMETHEUS),
    # Debian names the daemon after its package; everyone else uses upstream's name.
    "alertmanager": Wanted(("prometheus-alertmanager", "alertmanager"), "prometheus-alertmanager", ALERTMANAGER),
    "amtool": Wanted(("amtool",), "prometheus-alertmanager", ALERTMANAGER),
    "kubectl": Wanted(
        ("kubectl",),
        "kubernetes-client",
        {
            "fedora": "dnf install kubernetes-client",
            "arch": "pacman -S kubectl",
            "alpine": "apk add kubectl",
            "opensuse": "zypper install kubernetes-client",
        },
    ),
    "chromium": Wanted(("chromium", "chromium-browser", "google-chrome"), "chromium", _named_everywhere("chromium")),
    "haproxy": Wanted(("haproxy",), "haproxy", _named_everywhere("haproxy"), fetched_by="make lab"),
    "containerd": Wanted(("containerd",), "containerd", _named_everywhere("containerd"), fetched_by="make lab"),
    "ctr": Wanted(("ctr",), "containerd", _named_everywhere("containerd"), fetched_by="make lab"),
    "runc": Wanted(("runc",), "runc", _named_everywhere("runc"), fetched_by="make lab"),
    "nft": Wanted(("nft",), "nftables", _named_everywhere("nftables"), fetched_by="make lab"),
    "host-local": Wanted(
        ("host-local",),
        "containernetworking-plugins",
        {**_named_everywhere("cni-plugins"), "fedora": "dnf install containernetworking-plugins"},
        fetched_by="make lab",
    ),
    "busybox": Wanted(
        ("busybox-static", "busybox.static", "busybox"),
        "busybox-static",
        {**_named_everywhere("busybox"), "alpine": "apk add busybox-static"},
        fetched_by="make lab",
    ),
}
_CNI_PLUGINS = ("/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni", str(TOOLS / "node" / "usr" / "lib" / "cni"))
"""Folders of CNI plugins, which are on nobody's PATH."""
BESIDE_KUBELET = ("containerd", "ctr", "runc", "nft", "busybox", "host-local")
"""The programs that a real node needs beside kubelet; `host-local` is one of the CNI plugins."""


def search(name: str) -> Path | None:
    """Return the program's path, from PATH or the tool folder, or None if it is in neither."""
    # Packages put daemons into /usr/sbin, which not everybody has in PATH.
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), str(TOOLS / "bin"), "/usr/sbin", *_CNI_PLUGINS))
    found = (shutil.which(candidate, path=path) for candidate in PROGRAMS[name].names)
    return next((Path(hit) for hit in found if hit), None)


def find_program(name: str) -> Path:
    """Return the path of one of PROGRAMS. Raises ProgramMissingError with the command that installs it."""
    found = search(name)
    if found is None:
        nowhere = f"neither on PATH nor in {TOOLS / 'bin'}" if checkout() else "not on PATH"
        raise ProgramMissingError(f"{' or '.join(PROGRAMS[name].names)} is {nowhere}: {install_hint(name)}")
    return found


def install_hint(name: str, os_release: Path = Path("/etc/os-release")) -> str:
    """Return the command that installs the program on this system."""
    wanted = PROGRAMS[name]
    systems = _systems(os_release)
    if systems & {"debian", "ubuntu"}:
        install = f"`sudo apt-get install {wanted.debian}`"
        fetch = f"`{wanted.fetched_by}`, which fetches it without root, or " if checkout() else ""
        return f"run {fetch}{install}"
    for system, command in wanted.others.items():
        if system in systems:
            return f"run `sudo {command}`"
    return f"install {wanted.names[-1]} with your system's package manager and put it on PATH"


def _systems(os_release: Path) -> set[str]:
    """Return ID and ID_LIKE of os-release(5)."""
    try:
        lines = os_release.read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    values = dict(line.split("=", 1) for line in lines if "=" in line)
    words = f"{values.get('ID', '')} {values.get('ID_LIKE', '')}".replace('"', "").replace("'", "").split()
    return set(words)
