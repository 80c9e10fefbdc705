"""Machines on which no real node can run, and what a user reads there; and images without a registry."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path

import pytest

from gameday.errors import StartError
from gameday_rehearsal.lab.real_node import cgroups, node
from gameday_rehearsal.lab.real_node.image import BUSYBOX, write_busybox

_V1 = "cpu,cpuacct cpuset memory devices freezer pids"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)


def _mounted(folder: Path, v1: str, v2: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [folder / name for name in v1.split()]
    if v2:
        found.append(folder / "unified")
        found[-1].mkdir()
        (found[-1] / "cgroup.controllers").write_text(v2)
    monkeypatch.setattr(cgroups, "hierarchies", lambda: found)


def test_without_root_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(StartError, match="start the lab as root, with sudo"):
        node.check_machine(tmp_path)


@pytest.mark.parametrize(
    ("v1", "v2", "lacks"),
    [
        ("", "", "cpu, cpuset, memory, pids"),
        (_V1.replace("memory ", ""), "", "memory"),
        ("", "cpu memory pids", "cpuset"),
        (_V1.replace(" pids", ""), "pids", "pids"),
    ],
)
@pytest.mark.usefixtures("root")
def test_missing_controllers_are_named(
    v1: str, v2: str, lacks: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mounted(tmp_path, v1, v2, monkeypatch)
    with pytest.raises(StartError, match=f"needs the control group controllers {lacks}, which"):
        node.check_machine(tmp_path)


@pytest.mark.parametrize(("v1", "v2"), [(_V1, ""), ("", "cpuset cpu io memory hugetlb pids"), (_V1, "pids")])
@pytest.mark.usefixtures("root")
def test_where_no_overlay_can_be_mounted_the_reason_is_told(
    v1: str, v2: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _mounted(tmp_path, v1, v2, monkeypatch)
    refused = subprocess.CompletedProcess((), 32, stderr="mount: wrong fs type\nmore")
    monkeypatch.setattr(node.subprocess, "run", lambda *_, **__: refused)
    with pytest.raises(StartError, match=r"\(mount: wrong fs type\): choose a --folder on a file system"):
        node.check_machine(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} <= {"unified"}


@pytest.mark.usefixtures("root")
def test_a_folder_that_the_node_would_cover_is_refused() -> None:
    with pytest.raises(StartError, match="/var/lib/lab is below /var/lib or /run"):
        node.check_machine(Path("/var/lib/lab"))


def test_the_hierarchies_are_those_of_both_versions(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("a /a tmpfs rw 0 0\ncgroup /c/cpu cgroup rw,cpu 0 0\ncgroup2 /c/unified cgroup2 rw 0 0\n")
    assert cgroups.hierarchies(mounts) == [Path("/c/cpu"), Path("/c/unified")]


def test_an_image_has_its_program_and_its_name(tmp_path: Path) -> None:
    program, archive = tmp_path / "busybox", tmp_path / "image.tar"
    program.write_bytes(b"\x7fELF")
    write_busybox(program, archive)
    with tarfile.open(archive) as tar:
        read = {one.name: tar.extractfile(one).read() for one in tar}  # type: ignore[union-attr]
    (described,) = json.loads(read["index.json"])["manifests"]
    assert described["annotations"] == {"io.containerd.image.name": BUSYBOX}
    manifest = json.loads(_blob(read, described["digest"]))
    config = json.loads(_blob(read, manifest["config"]["digest"]))
    (layer,) = manifest["layers"]
    assert config["rootfs"]["diff_ids"] == [layer["digest"]]
    (tmp_path / "layer.tar").write_bytes(_blob(read, layer["digest"]))
    with tarfile.open(tmp_path / "layer.tar") as tar:
        assert tar.extractfile("bin/sh").read() == b"\x7fELF"  # type: ignore[union-attr]
        assert tar.getmember("bin/busybox").mode == 0o755


def _blob(files: dict[str, bytes], digest: str) -> bytes:
    return files["blobs/sha256/" + digest.removeprefix("sha256:")]
