"""The parts of `make test`: every test file is in exactly one, whether its seconds are on record or not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import fast_suite
from tests.support.fast_suite import files_of_tests, part_of


@pytest.mark.parametrize("recorded", [fast_suite.RECORDED.read_text(encoding="utf-8"), "", "9999.0 tests/gone.py\n"])
def test_every_file_is_in_one_part(recorded: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "seconds.txt").write_text(recorded, encoding="utf-8")
    monkeypatch.setattr(fast_suite, "RECORDED", tmp_path / "seconds.txt")
    parts = [part_of(f"{number}/3") for number in (1, 2, 3)]
    assert all(parts)
    assert sorted(file for part in parts for file in part) == files_of_tests()
