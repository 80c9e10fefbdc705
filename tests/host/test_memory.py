"""The memory that is free, by the machine's figures and by a container's limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import HostError
from gameday.host import memory
from gameday.host.memory import free_memory, why_too_large


class Files:
    """The kernel's files, as a test writes them: a machine of 20 GiB with 15 free, and no control group of ours."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.groups = folder / "groups"
        self.meminfo, self.own = folder / "meminfo", folder / "own"
        for name, path in (("MEMINFO", self.meminfo), ("OWN_GROUP", self.own), ("GROUPS", self.groups)):
            monkeypatch.setattr(memory, name, path)
        self.machine(15)

    def machine(self, free: int) -> None:
        """Have so many of 20 GiB free."""
        self.meminfo.write_text(f"MemTotal: {20 * 2**20} kB\nMemFree: 10 kB\nMemAvailable: {free * 2**20} kB\n")

    def group(self, path: str, limit: str, used: int = 0, caches: int = 0) -> None:
        """Make a control group; `limit`, `used` and its `caches` are in GiB."""
        folder = self.groups / path
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "memory.max").write_text(f"{limit if limit == 'max' else int(limit) * 2**30}\n")
        (folder / "memory.current").write_text(f"{used * 2**30}\n")
        (folder / "memory.stat").write_text(f"anon 1\ninactive_file {caches * 2**30}\n")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(tmp_path, monkeypatch)


def test_this_machine_has_memory() -> None:
    assert 0 < free_memory().share < 1


def test_what_programs_can_still_get_is_read_of_the_kernel(files: Files) -> None:
    assert str(free_memory()) == "15.0 of this machine's 20.0 GiB free, 75.0%"


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: many kB\n", "\xff"])
def test_what_cannot_be_read_is_said(files: Files, text: str) -> None:
    files.meminfo.write_text(text)
    with pytest.raises(HostError, match="cannot read how much memory is free"):
        free_memory()


def test_a_containers_limit_counts_where_it_leaves_less(files: Files) -> None:
    files.own.write_text("0::/\n")
    files.group("", "4", used=3)
    assert str(free_memory()) == "1.0 of this container's 4.0 GiB free, 25.0%"
    files.machine(2)
    assert free_memory().owner == "this machine"


def test_caches_that_the_kernel_drops_first_are_free(files: Files) -> None:
    files.own.write_text("0::/\n")
    files.group("", "4", used=4, caches=2)
    assert free_memory().share == 0.5


def test_the_limit_of_a_group_around_ours_counts(files: Files) -> None:
    files.own.write_text("5:memory:/old\n0::/user.slice/session.scope\n")
    files.group("user.slice", "8", used=7)
    files.group("user.slice/session.scope", "max", used=7)
    assert free_memory().share == 0.125


@pytest.mark.parametrize("limit", ["max", "0"])
def test_a_group_without_a_limit_says_nothing(files: Files, limit: str) -> None:
    files.own.write_text("0::/\n")
    files.group("", limit, used=3)
    assert free_memory().owner == "this machine"


@pytest.mark.parametrize("own", ["1:name=systemd:/\n4:memory:/old\n", "0::/../elsewhere\n", ""])
def test_groups_that_are_not_ours_to_see_say_nothing(files: Files, own: str) -> None:
    files.own.write_text(own)
    assert free_memory().owner == "this machine"


@pytest.mark.parametrize(("needed", "fits"), [(12, True), (13, False)])
def test_what_would_not_leave_the_share_that_must_stay_free_is_too_large(files: Files, needed: int, fits: bool) -> None:
    assert why_too_large(needed * 2**30) == (
        ""
        if fits
        else "it takes 13.0 GiB of memory, 3.0 GiB (15% of this machine's) must stay free beside it, and 15.0 GiB are"
        " free"
    )


def test_what_fits_the_machine_may_be_too_large_for_the_container(files: Files) -> None:
    files.own.write_text("0::/\n")
    files.group("", "8", used=2)
    assert "of this container's) must stay free beside it, and 6.0 GiB are free" in why_too_large(5 * 2**30)
