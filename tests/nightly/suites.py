"""The suites of the nightly: the Makefile's own targets, and why one cannot be played on this machine."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Suite:
    """A target of the Makefile.

    `arguments` are pytest's, or those of another program; {round} in them is the round's number.
    """

    name: str
    target: str
    arguments: tuple[str, ...] = ()
    is_pytest: bool = True
    why_not: Callable[[], str] = lambda: ""

    def command(self, number: int, junit: Path) -> list[str]:
        """Return the command that plays it in round `number`; pytest writes `junit`."""
        given = [argument.format(round=number) for argument in self.arguments]
        # The older family of JUnit's files has the test's file, without which there is no id of pytest's.
        written = [f"--junitxml={junit}", "-o", "junit_family=xunit1"] if self.is_pytest else []
        return ["make", "--no-print-directory", "-C", str(ROOT), self.target, f"ARGS={shlex.join([*given, *written])}"]


def _without_lab() -> str:
    found = subprocess.run(
        [sys.executable, "scripts/build_lab.py", "find"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return found.stderr.strip() or "the lab is not built" if found.returncode else ""


def _without_gpu() -> str:
    return "" if Path("/dev/nvidiactl").exists() else "there is no NVIDIA GPU: no /dev/nvidiactl"


def _without_dcgm() -> str:
    return "" if os.environ.get("GAMEDAY_DCGM") else "no DCGM is named: GAMEDAY_DCGM=host:port"


def _without_buildah() -> str:
    missing = [name for name in ("buildah", "mmdebstrap") if shutil.which(name) is None]
    return f"not on PATH: {', '.join(missing)}" if missing else ""


SUITES = (
    Suite("fast", "test"),
    Suite("gate", "test-gate"),
    Suite("kubesim", "test-kubesim", ("-m", "conformance and not slow and not lab")),
    Suite("slow", "test-slow", ("-m", "slow and not gate and not browser and not lab")),
    Suite(
        "properties",
        "test-slow",
        ("-m", "not slow", "--hypothesis-profile=nightly", "--timeout=3600", "tests/scripted/test_properties.py"),
    ),
    Suite("browser", "test-slow", ("-m", "browser and not gate and not lab")),
    Suite("lab", "test-lab", why_not=_without_lab),
    Suite("control-plane", "test-control-plane", why_not=_without_lab),
    Suite("gpu", "test-gpu", why_not=_without_gpu),
    Suite("dcgm", "test-dcgm", why_not=_without_dcgm),
    # Another choice of its combinations in each round.
    Suite("torture", "torture", ("--seed", "{round}"), is_pytest=False),
    Suite("image", "image", is_pytest=False, why_not=_without_buildah),
)
