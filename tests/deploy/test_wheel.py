"""The wheel: whatever a checkout has that the program reads is in it, and the program runs from it alone."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Sequence
from configparser import ConfigParser
from pathlib import Path

import pytest

from gameday.errors import IncompleteInstallationError
from gameday.plan.catalogue import shipped_plans
from gameday.shipped import checkout, shipped
from tests.deploy.manifests import ROOT

pytestmark = pytest.mark.slow

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
INSIDE = "gameday/_shipped"
READ = ("deploy", "docs/runbooks", "plans", "templates")


def _build(kind: str, folder: Path) -> Path:
    """No index is asked: the back end is one of our own development dependencies."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder], cwd=ROOT, check=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def site(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel as pip lays it out, purelib alone."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _gameday(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The console script of the wheel's own entry point; nothing of the checkout is on the path."""
    entry_points = ConfigParser()
    (file,) = site.glob("*.dist-info/entry_points.txt")
    entry_points.read(file)
    module, _, function = entry_points["console_scripts"]["gameday"].partition(":")
    script = (
        f"import sys; sys.path = [{str(site)!r}] + [p for p in sys.path if p != {str(ROOT)!r}]\n"
        f"from {module} import {function}; {function}()"
    )
    return subprocess.run(
        [sys.executable, "-P", "-c", script, *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("folder", READ)
def test_the_wheel_holds_every_file_of_a_folder_the_program_reads(site: Path, folder: str) -> None:
    assert _files(site / INSIDE / folder) == _files(ROOT / folder)


@pytest.mark.parametrize(
    ("package", "source"),
    [("gameday", "gameday"), ("gameday/flows", "flows"), ("gameday/tasks", "tasks"), ("kubesim", "kubesim")],
)
def test_the_wheel_holds_every_file_of_our_packages(site: Path, package: str, source: str) -> None:
    elsewhere = ("_shipped/", "flows/", "tasks/")
    assert {name for name in _files(site / package) if not name.startswith(elsewhere)} == _files(ROOT / source)


def test_the_wheel_holds_the_deployments(site: Path) -> None:
    assert (site / INSIDE / "prefect.yaml").read_bytes() == (ROOT / "prefect.yaml").read_bytes()


def test_the_wheel_holds_nothing_else(site: Path) -> None:
    distribution = f"{PROJECT['project']['name'].replace('-', '_')}-{PROJECT['project']['version']}.dist-info"
    assert {path.name for path in site.iterdir()} == {"gameday", "kubesim", distribution}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "Chaos game-days"),
        (["plans"], "clock-lock"),
        (["detectors"], "nvsentinel"),
        (["validate", *list(shipped_plans())[:1]], f"{INSIDE}/plans/"),
        (["report", "sample"], "report.html"),
        (["health", "explain", "NVRM: Xid (PCI:0000:4e:00): 79, x", "--policy", "conservative"], "quarantine"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_runs_from_the_wheel_alone(site: Path, tmp_path: Path, arguments: Sequence[str], said: str) -> None:
    shutil.copytree(ROOT / "reports" / "sample", tmp_path / "sample")
    done = _gameday(site, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_file_that_is_missing_is_named_with_what_to_do(site: Path, tmp_path: Path) -> None:
    plans = site / INSIDE / "plans"
    away = plans.rename(tmp_path / "plans")
    try:
        done = _gameday(site, tmp_path, "plans")
    finally:
        away.rename(plans)
    assert done.returncode == 70
    assert f"lacks 'plans'; searched for in {plans}" in done.stderr
    assert "Reinstall it" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_source_distribution_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(_build("sdist", tmp_path / "sdist")) as archive:
        archive.extractall(tmp_path / "source", filter="data")
    (source,) = (tmp_path / "source").iterdir()
    made = tmp_path / "made"
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made], cwd=source, check=True)
    with zipfile.ZipFile(wheel) as one, zipfile.ZipFile(made / wheel.name) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())


def test_a_checkout_is_used_in_place() -> None:
    assert checkout() == ROOT
    assert [shipped(kind) for kind in ("plans", "templates", "deploy")] == [
        ROOT / "plans",
        ROOT / "templates",
        ROOT / "deploy",
    ]


def test_a_folder_of_the_same_name_beside_an_installed_package_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site" / "plans").mkdir(parents=True)
    package = tmp_path / "site" / "gameday"
    (package / "_shipped" / "plans").mkdir(parents=True)
    monkeypatch.setattr("gameday.shipped._PACKAGE", package)
    monkeypatch.setattr("gameday.shipped._INSTALLED", package / "_shipped")
    assert shipped("plans") == package / "_shipped" / "plans"
    assert checkout() is None
    with pytest.raises(IncompleteInstallationError, match="lacks 'templates'"):
        shipped("templates")
