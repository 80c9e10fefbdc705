"""The share of the machine's memory that is free."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.api_clients.memory import MEMINFO, free_share
from gameday.errors import HostError


def test_what_programs_can_still_get_is_read_of_the_kernel(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  1000 kB\nMemFree:  10 kB\nMemAvailable:  250 kB\nHugePages_Total:  0\n")
    assert free_share(meminfo) == 0.25
    assert 0 < free_share(MEMINFO) < 1


@pytest.mark.parametrize("text", ["", "MemTotal: 0 kB\nMemAvailable: 0 kB\n", "MemTotal: many kB\n", "\xff"])
def test_what_cannot_be_read_is_said(tmp_path: Path, text: str) -> None:
    (tmp_path / "meminfo").write_text(text)
    with pytest.raises(HostError, match="cannot read how much memory is free"):
        free_share(tmp_path / "meminfo")
