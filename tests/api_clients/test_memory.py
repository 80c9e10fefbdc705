"""The share of the machine's memory that is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.api_clients import memory
from gameday.api_clients.memory import free_share, why_too_large
from gameday.errors import HostError


def test_what_programs_can_still_get_is_read_of_the_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < free_share() < 1
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  250 kB\nHugePages_Total:  0\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    assert free_share() == 0.25


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: many kB\n", "\xff"])
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "meminfo").write_text(text)
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    with pytest.raises(HostError, match="cannot read how much memory is free"):
        free_share()


@pytest.mark.parametrize(("needed", "fits"), [(12, True), (13, False)])
def test_what_would_not_leave_the_share_that_must_stay_free_is_too_large(
    tmp_path: Path, needed: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: {20 * 2**20} kB\nMemAvailable: {15 * 2**20} kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    why = why_too_large(needed * 2**30)
    assert why == (
        ""
        if fits
        else "it takes 13.0 GiB of memory, 3.0 GiB (15% of this machine's) must stay free beside it, and 15.0 GiB are"
        " free"
    )
