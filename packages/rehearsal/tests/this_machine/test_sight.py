"""The sentences that a user reads before a game-day on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host.base import DcgmEngines, GpuSample
from gameday.host.nvml_missing import NO_LIBRARY_HINT
from gameday.host.real import RealHost
from gameday_rehearsal.this_machine import sight
from gameday_rehearsal.this_machine.sight import look

GPU = GpuSample(index=0, uuid="GPU-1", name="H200", pci_bus_id="0000:4e:00")
Forbid = Callable[..., None]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a machine with one GPU, on which root sees everything, and CuPy is installed."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").touch()
    (tmp_path / "proc/driver/nvidia/gpus/0000:4e:00.0").mkdir(parents=True)
    for pid in ("1", "7"):
        (tmp_path / "proc" / pid / "fd").mkdir(parents=True)
    monkeypatch.setattr(RealHost, "gpus", lambda _: [GPU])
    monkeypatch.setattr(RealHost, "dcgm_engines", lambda _: DcgmEngines())
    monkeypatch.setattr(sight, "find_spec", lambda _: object())
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return tmp_path


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Forbid:
    """Return a function that lets a path be opened by nobody, or not with these flags."""
    open_file, scan = os.open, os.scandir

    def refuse(path: Path, flags: int | None = None) -> None:
        def opened(one: Path, wanted: int, *rest: int) -> int:
            if one == path and (flags is None or wanted & os.O_ACCMODE == flags):
                raise PermissionError(13, "Permission denied")
            return open_file(one, wanted, *rest)

        def scanned(one: Path) -> object:
            if one == path:
                raise PermissionError(13, "Permission denied")
            return scan(one)

        monkeypatch.setattr(os, "open", opened)
        monkeypatch.setattr(os, "scandir", scanned)

    return refuse


def test_root_sees_everything(root: Path) -> None:
    seen = look(root)
    assert (seen.gpus, seen.has_gpus, seen.computes, seen.obstacles, seen.unseen) == ((GPU,), True, True, (), ())


def test_a_process_that_even_root_may_not_look_into_is_named(root: Path, forbid: Forbid) -> None:
    forbid(root / "proc/1/fd")
    (line,) = look(root).unseen
    assert line == "the open files of process 1: even root may not read them, so a reset is refused"
    assert not look(root).obstacles


def test_who_may_not_write_to_the_kernel_log_is_told_how(
    root: Path, forbid: Forbid, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbid(root / "dev/kmsg")
    assert "not even root may write" in look(root).obstacles[0]
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    seen = look(root)
    assert "play as root (sudo /" in seen.obstacles[0]
    assert "you are not root" in seen.unseen[0]
    (root / "dev/kmsg").unlink()
    assert "is this a container?" in look(root / "elsewhere").obstacles[0]


@pytest.mark.parametrize(("record", "found"), [("a line", "journald, which is a little later"), ("", "neither")])
def test_a_kernel_log_that_may_not_be_read_is_read_from_journald(
    root: Path, tmp_path: Path, forbid: Forbid, monkeypatch: pytest.MonkeyPatch, record: str, found: str
) -> None:
    forbid(root / "dev/kmsg", os.O_RDONLY)
    journal = tmp_path / "bin/journalctl"
    journal.parent.mkdir()
    journal.write_text(f"#!/bin/sh\necho '{record}'\n")
    journal.chmod(0o755)
    monkeypatch.setenv("PATH", f"{journal.parent}:/usr/bin:/bin")
    seen = look(root)
    assert found in "".join(seen.unseen if record else seen.obstacles)
    assert bool(seen.obstacles) is not bool(record)


def test_a_machine_without_a_driver_is_sent_to_virtual_nodes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: RealHost) -> list[GpuSample]:
        raise HostError(f"NVML not found (no such file): {NO_LIBRARY_HINT}")

    monkeypatch.setattr(RealHost, "gpus", missing)
    (why,) = look(root).obstacles
    assert "install NVIDIA's driver; without a GPU, `gameday rehearse` plays on virtual nodes" in why


@pytest.mark.parametrize(
    ("gpus", "said"), [([], "counts no GPU"), ([GPU.model_copy(update={"lost": True})], "is lost")]
)
def test_gpus_that_nobody_could_break_are_told(
    root: Path, monkeypatch: pytest.MonkeyPatch, gpus: list[GpuSample], said: str
) -> None:
    monkeypatch.setattr(RealHost, "gpus", lambda _: gpus)
    (why,) = look(root).obstacles
    assert said in why


def test_what_cannot_compute_is_said(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sight, "find_spec", lambda _: None)
    seen = look(root)
    assert (seen.has_gpus, seen.computes) == (True, False)
    assert "CuPy is not installed" in seen.unseen[0]
    (root / "proc/driver/nvidia/gpus/0000:4e:00.0").rmdir()
    seen = look(root)
    assert (seen.has_gpus, seen.computes) == (False, False)
    assert "it is a mock" in seen.unseen[0]
