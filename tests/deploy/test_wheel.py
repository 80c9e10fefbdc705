"""The distributions: what a checkout has that the programs read is in them, and the programs run from them alone."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from gameday.errors import IncompleteInstallationError
from gameday.plan.catalogue import shipped_plans
from gameday.shipped import checkout, shipped
from tests.deploy.distributions import PACKAGES, PROJECTS, module_of
from tests.deploy.manifests import ROOT

pytestmark = pytest.mark.slow

INSIDE = "gameday/_shipped"
READ = ("deploy", "docs/runbooks", "plans", "templates")
START = "from importlib.metadata import entry_points as e; e(group='console_scripts')['gameday'].load()()"


def _build(kind: str, project: Path, folder: Path) -> Path:
    """No index is asked: the back end is one of our own development dependencies."""
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", folder], cwd=project, check=True)
    (built,) = folder.iterdir()
    return built


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("wheels")
    return {name: _build("wheel", project, folder / name) for name, project in PROJECTS.items()}


def _site(folder: Path, wheels: Iterable[Path]) -> Path:
    """Make an environment with these wheels and the locked packages, and return its site-packages."""
    venv.create(folder, symlinks=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(site)
    others = folder / "others"
    others.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if path.suffix != ".pth" and not path.name.startswith(("gameday", "gpu_gameday")):
            (others / path.name).symlink_to(path)
    (site / "others.pth").write_text(f"{others}\n", encoding="utf-8")
    return site


@pytest.fixture(scope="module")
def core(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core alone."""
    return _site(tmp_path_factory.mktemp("core"), [wheels["gpu-gameday"]])


@pytest.fixture(scope="module")
def full(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All that we ship."""
    return _site(tmp_path_factory.mktemp("full"), wheels.values())


def _files(folder: Path) -> set[str]:
    return {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def _python(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [site.parents[2] / "bin" / "python", "-I", *arguments]
    return subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)


def _gameday(site: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return _python(site, cwd, "-c", START, *arguments)


@pytest.fixture(params=["core", "full"])
def either(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue(request.param)


def test_nothing_of_the_checkout_is_importable(either: Path, tmp_path: Path) -> None:
    path = json.loads(_python(either, tmp_path, "-c", "import json, sys; print(json.dumps(sys.path))").stdout)
    assert [entry for entry in path if Path(entry).is_relative_to(ROOT)] == []


@pytest.mark.parametrize("folder", READ)
def test_the_wheel_holds_every_file_of_a_folder_the_program_reads(core: Path, folder: str) -> None:
    assert _files(core / INSIDE / folder) == _files(ROOT / folder)


@pytest.mark.parametrize(
    ("package", "source"),
    [("gameday", "gameday"), ("gameday/flows", "flows"), ("gameday/tasks", "tasks")],
)
def test_the_wheel_holds_every_file_of_the_core(core: Path, package: str, source: str) -> None:
    elsewhere = ("_shipped/", "flows/", "tasks/")
    assert {name for name in _files(core / package) if not name.startswith(elsewhere)} == _files(ROOT / source)


def test_the_wheel_holds_the_deployments(core: Path) -> None:
    assert (core / INSIDE / "prefect.yaml").read_bytes() == (ROOT / "prefect.yaml").read_bytes()


def test_the_wheel_holds_nothing_else(wheels: dict[str, Path]) -> None:
    with zipfile.ZipFile(wheels["gpu-gameday"]) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"gameday"}


@pytest.mark.parametrize("name", PACKAGES)
def test_a_packages_wheel_holds_every_file_of_its_module_and_nothing_else(wheels: dict[str, Path], name: str) -> None:
    module = module_of(name)
    with zipfile.ZipFile(wheels[name]) as archive:
        held = {file for file in archive.namelist() if ".dist-info/" not in file}
    assert held == {f"{module.name}/{file}" for file in _files(module)}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--help"], "Chaos game-days"),
        (["plans"], "clock-lock"),
        (["detectors"], "nvsentinel"),
        (["validate", *list(shipped_plans())[:1]], f"{INSIDE}/plans/"),
        (["report", "sample"], "report.html"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_command_runs_from_the_core_alone(core: Path, tmp_path: Path, arguments: Sequence[str], said: str) -> None:
    shutil.copytree(ROOT / "reports" / "sample", tmp_path / "sample")
    done = _gameday(core, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_rehearsal_is_refused_from_the_core_alone_with_what_to_install(core: Path, tmp_path: Path) -> None:
    done = _gameday(core, tmp_path, "coverage", next(iter(shipped_plans())), "--rehearse")
    assert done.returncode == 5, done.stderr
    assert "pip install gpu-gameday-rehearsal" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rehearse", "--help"], "--detector"),
        (["rehearsal", "--help"], "up"),
        (["lab", "--help"], "up"),
        (["fleet", "--help"], "--rehearse"),
        (["health", "explain", "NVRM: Xid (PCI:0000:4e:00): 79, x", "--policy", "conservative"], "quarantine"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_a_packages_command_runs_from_its_wheel(
    full: Path, tmp_path: Path, arguments: Sequence[str], said: str
) -> None:
    done = _gameday(full, tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_a_file_that_is_missing_is_named_with_what_to_do(core: Path, tmp_path: Path) -> None:
    plans = core / INSIDE / "plans"
    away = plans.rename(tmp_path / "plans")
    try:
        done = _gameday(core, tmp_path, "plans")
    finally:
        away.rename(plans)
    assert done.returncode == 70
    assert f"lacks 'plans'; searched for in {plans}" in done.stderr
    assert "Reinstall it" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    folder = tmp_path_factory.mktemp("source")
    with tarfile.open(_build("sdist", ROOT, folder / "built")) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    return unpacked


def test_the_source_distribution_holds_every_file_of_the_repository_once(source: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is no git repository")
    files = {name for name in listed.stdout.splitlines() if (ROOT / name).exists()}
    links = {name for name in files if (ROOT / name).is_symlink()}
    assert _files(source) - {"PKG-INFO"} == files - links
    subprocess.run([sys.executable, "-c", "import setup; setup.restore_links()"], cwd=source / "scripts", check=True)
    assert {name: (source / name).readlink() for name in links} == {name: (ROOT / name).readlink() for name in links}


@pytest.mark.parametrize("name", PROJECTS)
def test_the_source_distribution_builds_the_same_wheel(
    source: Path, wheels: dict[str, Path], tmp_path: Path, name: str
) -> None:
    made = _build("wheel", source / PROJECTS[name].relative_to(ROOT), tmp_path)
    with zipfile.ZipFile(wheels[name]) as one, zipfile.ZipFile(made) as other:
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
