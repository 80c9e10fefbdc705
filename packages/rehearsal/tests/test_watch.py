from __future__ import annotations

from pathlib import Path

import pytest

from gameday.errors import ChildError, MemoryShortError
from gameday.host import memory
from gameday_rehearsal.watch import Watch, check_memory
from tests.rehearsal.processes import until


def test_it_looks_until_the_cluster_must_not_go_on_and_ends_it_once() -> None:
    found: list[ChildError | None] = [None, None, ChildError("nodes died")]
    ended: list[str] = []

    def look() -> None:
        if error := found.pop(0):
            raise error

    with Watch(look, ended.append) as watch:
        until(lambda: bool(ended), 10, "the end")
        assert found == []
    assert ended == ["nodes died"]
    assert isinstance(watch.error, ChildError)


def test_its_end_comes_with_the_block() -> None:
    looks: list[None] = []
    with Watch(lambda: looks.append(None), pytest.fail) as watch:
        until(lambda: len(looks) > 1, 10, "a second look")
    before = len(looks)
    assert not watch._thread.is_alive()
    assert len(looks) == before
    assert watch.error is None


@pytest.mark.parametrize(("free", "ends"), [(1000, False), (51, False), (49, True)])
def test_a_cluster_ends_below_a_twentieth_of_the_memory(
    free: int, ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 1000 kB\nMemAvailable: {free} kB\n")
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "OWN_GROUP", tmp_path / "none")
    if not ends:
        check_memory()
        return
    with pytest.raises(MemoryShortError, match=r"ran short of memory: .* free, 4\.9%, .* start a smaller cluster"):
        check_memory()


def test_where_no_memory_can_be_read_nothing_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "MEMINFO", tmp_path / "none")
    check_memory()
