"""scripts/metal.py, which plays in the bundle: if a part fails, the folder to send back has the rest."""

from __future__ import annotations

import signal
import sys
import tarfile
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.deploy.manifests import ROOT

PARTS = """#!{python}
import os, signal, sys
from pathlib import Path

def undone(*_):
    print("undone", flush=True)
    sys.exit(3)

if "rehearse" in sys.argv:
    run = Path(sys.argv[sys.argv.index("--reports") + 1], "run")
    (run / "frames").mkdir(parents=True)
    for name in ("history.jsonl", "report.html", "frames/nvml.parquet"):
        (run / name).write_text(name)
    if "{becomes}" == "interrupted":
        signal.signal(signal.SIGINT, undone)
        os.kill(os.getppid(), signal.SIGINT)
        signal.pause()
    if "{becomes}" == "hanging":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        print("hangs", flush=True)
        while True:
            signal.pause()
    sys.exit(1)
if "pytest" in sys.argv:
    Path("reports/metal.md").write_text("seen")
"""
"""Stands for the bundle's Python: what it is asked to play depends on the arguments, and how that ends on `becomes`."""
OF_THE_RUN = {"history.jsonl", "report.html", "runs.tar.gz"}
ALWAYS = {"kernel.log", "metal.log", "versions.txt"}


@pytest.fixture
def metal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The script as a module, in a bundle that is set up."""
    signals = {which: signal.getsignal(which) for which in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # else a child of a shell's background job ignores it
    spec = spec_from_file_location("metal", ROOT / "scripts" / "metal.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in {"HERE": tmp_path, "PYTHON": tmp_path / "python", "SITE": tmp_path / "site"}.items():
        monkeypatch.setattr(module, name, value)
    monkeypatch.setattr(module, "set_up", lambda: None)
    (tmp_path / "VERSION").write_text("the bundle")
    (tmp_path / "reports").mkdir()
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    yield module
    for which, handler in signals.items():
        signal.signal(which, handler)


def _played(metal: ModuleType, becomes: str) -> tuple[int, set[str], str]:
    """Return the status, the names of the files to send back, and the log."""
    metal.PYTHON.write_text(PARTS.format(python=sys.executable, becomes=becomes))
    metal.PYTHON.chmod(0o755)
    status = metal.main([])
    (results,) = metal.HERE.glob("results-*")
    return status, {path.name for path in results.iterdir()}, (results / "metal.log").read_text()


def test_a_game_day_that_fails_loses_neither_its_report_nor_the_tests(metal: ModuleType) -> None:
    status, files, log = _played(metal, "failed")
    assert status == 1
    assert files == {*OF_THE_RUN, *ALWAYS, "metal.md"} and len(files) <= 8
    assert "the game-day ended with status 1" in log and "the GPU's tests ended with status 0" in log
    (runs,) = metal.HERE.glob("results-*/runs.tar.gz")
    with tarfile.open(runs) as archive:
        assert "runs/run/frames/nvml.parquet" in archive.getnames()


def test_ctrl_c_lets_the_game_day_undo_plays_no_tests_and_keeps_what_there_is(metal: ModuleType) -> None:
    status, files, log = _played(metal, "interrupted")
    assert (status, files) == (130, {*OF_THE_RUN, *ALWAYS})
    assert "undone" in log and "the game-day ended with status 3" in log and "tests" not in log


def test_a_game_day_that_hangs_is_killed_and_the_tests_are_played(
    metal: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    show = metal.show

    def show_until_it_hangs(process, log: Path) -> None:
        """As if the time were up as soon as the game-day hangs."""
        if "rehearse" in process.args:
            assert process.stdout.readline() == "hangs\n"
            metal.end(process)
        show(process, log)

    monkeypatch.setattr(metal, "show", show_until_it_hangs)
    status, files, log = _played(metal, "hanging")
    assert (status, files) == (1, {*OF_THE_RUN, *ALWAYS, "metal.md"})
    assert f"the game-day ended with status {-signal.SIGKILL}" in log


def test_a_part_is_broken_off_when_its_time_is_up(metal: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metal, "PYTHON", "sleep")
    log = metal.HERE / "metal.log"
    assert metal.run("a part", ["infinity"], 0.0, log) == -signal.SIGINT


def test_a_package_that_is_too_old_or_lacks_is_not_met(metal: ModuleType) -> None:
    assert metal.requirement("pandas") == "pandas>=3"
    assert metal.is_met("pandas>=3") and not metal.is_met("pandas>=1000") and not metal.is_met("no-such-package>=1")
    (metal.SITE / "no-such-package").mkdir(parents=True)
    assert metal.is_met("no-such-package>=1")
