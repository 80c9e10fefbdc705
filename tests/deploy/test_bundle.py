"""`make bundle`: small enough, and all that a machine without network needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gameday import __version__
from tests.deploy.manifests import ROOT

# Ten minutes of processor time for xz.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

LIMIT = 60_000_000
UNPLUGGED = ["unshare", "--map-root-user", "--net"]
"""A network namespace of its own, in which not even the loopback interface is up."""


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archives")
    subprocess.run([sys.executable, "scripts/bundle.py", str(folder)], cwd=ROOT, check=True)
    return folder


@pytest.fixture(scope="module")
def bundle(archives: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked bundle, without NumPy, pandas and pyarrow."""
    folder = tmp_path_factory.mktemp("machine")
    _unpack(archives / "gameday-metal.tar.xz", folder)
    return folder / "gameday-metal"


def _unpack(archive: Path, folder: Path) -> None:
    subprocess.run(["tar", "-xf", archive, "-C", folder], check=True)


def _there(bundle: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program as on a fresh machine: without network, this user's files and variables."""
    base = Path(sys.base_prefix) / "bin"
    environment = {"HOME": str(bundle), "PATH": f"{base}:{os.defpath}"}
    command = [*UNPLUGGED, *argv]
    return subprocess.run(command, cwd=bundle, env=environment, capture_output=True, text=True, check=False)


def test_both_archives_are_within_the_limit(archives: Path) -> None:
    sizes = {path.name: path.stat().st_size for path in archives.iterdir()}
    assert sizes.keys() == {"gameday-metal.tar.xz", "gameday-metal-frames.tar.xz"}
    assert max(sizes.values()) <= LIMIT, sizes


def test_it_sets_itself_up_without_network_and_works(archives: Path, bundle: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*UNPLUGGED, "true"], check=False).returncode:
        pytest.skip("no network namespace can be made here")
    asked = _there(bundle, "bash", "metal.sh", "setup")
    assert asked.returncode == 69 and f"tar -xf gameday-metal-frames.tar.xz -C {bundle.parent}" in asked.stderr
    _unpack(archives / "gameday-metal-frames.tar.xz", bundle.parent)
    done = _there(bundle, "bash", "metal.sh", "setup")
    assert done.returncode == 0, done.stderr
    gameday = str(bundle / "env" / "bin" / "gameday")
    assert _there(bundle, gameday, "--version").stdout == f"gameday {__version__}\n"
    validated = _there(bundle, gameday, "validate", "gpu-fell-off-the-bus")
    assert validated.returncode == 0 and str(bundle) in validated.stdout, validated
    for program in ("prometheus", "prometheus-alertmanager"):
        assert _there(bundle, f"bin/{program}", "--version").returncode == 0
    found = _there(
        bundle, "env/bin/python", "-m", "pytest", "--collect-only", "-q", "--confcutdir=tests/gpu", "tests/gpu"
    )
    assert found.returncode == 0, found.stdout
