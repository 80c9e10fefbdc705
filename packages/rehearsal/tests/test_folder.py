from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gameday.cluster.virtual_cluster import LOCK, holder
from gameday.errors import FolderHeldError
from gameday.processes.children import private_files
from gameday_rehearsal.blueprint import Blueprint, Detector, Size
from gameday_rehearsal.folder import STATE, HeldFolder


def test_a_held_folder_names_its_process_and_keeps_others_out(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "folder"
    assert holder(folder) is None
    held = HeldFolder(folder)
    assert (folder / ".gitignore").read_text() == "*\n", "kubeconfigs belong into nobody's repository"
    (folder / STATE).write_text("{}")
    assert holder(folder) == os.getpid()
    with pytest.raises(FolderHeldError) as refused:
        HeldFolder(folder)
    assert refused.value.pid == os.getpid()
    assert (folder / STATE).exists(), "the refused one may not touch the holder's files"
    held.release()
    assert holder(folder) is None
    assert not (folder / STATE).exists()


def test_what_a_killed_rehearsal_left_means_nothing_even_when_its_number_lives_again(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path; from gameday_rehearsal.folder import HeldFolder;"
        "held = HeldFolder(Path(sys.argv[1])); os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    (tmp_path / LOCK).write_text(f"{os.getpid()}\n")  # as if the number had been given to somebody else
    (tmp_path / STATE).write_text(f'{{"pid": {os.getpid()}}}')
    (tmp_path / "nodes.log").write_text("old")
    blueprint = Blueprint(tmp_path, Size(), Detector.OFF)
    for folder in (blueprint.credentials, blueprint.detector_profiles):
        folder.mkdir()
    (tmp_path / "prefect").mkdir()
    assert holder(tmp_path) is None
    held = HeldFolder(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {".gitignore", LOCK, "prefect"}
    held.release()


def test_a_folder_is_its_users_alone_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with private_files():
            held = HeldFolder(tmp_path / "folder")
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert [path.stat().st_mode & 0o777 for path in (held.folder, held.folder / LOCK)] == [0o700, 0o600]
    held.release()


def test_asking_changes_nothing(tmp_path: Path) -> None:
    assert holder(tmp_path) is None
    assert list(tmp_path.iterdir()) == []
