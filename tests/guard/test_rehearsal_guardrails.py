"""The guardrails of a rehearsal alone: the memory of the machine that carries it, and its processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cluster.virtual_cluster import ENDED
from gameday.guard.check import GuardrailCheck, check, guard_before, under_guardrails
from gameday.guard.guardrails.memory import FreeMemory
from gameday.guard.guardrails.virtual_cluster import VirtualCluster
from gameday.host import memory
from gameday_rehearsal.folder import HeldFolder
from tests.guard.observations import FakeRun, node, plan, profile
from tests.rehearsal.processes import until


def rehearsed(folder: Path | None) -> FakeRun:
    return FakeRun(plan(), profile().model_copy(update={"rehearsal": folder}), node("n0"))


def look(rail: FreeMemory | VirtualCluster, run: FakeRun) -> GuardrailCheck:
    checked = check(rail, run.observe())
    assert checked is not None
    return checked


def leave(share: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have so much of 10 GiB free, on a machine without control groups."""
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: {10 * 2**20} kB\nMemAvailable: {round(share * 10 * 2**20)} kB\n")
    monkeypatch.setattr(memory, "MEMINFO", meminfo)
    monkeypatch.setattr(memory, "OWN_GROUP", tmp_path / "none")


@pytest.mark.parametrize("rail", [FreeMemory(), VirtualCluster()])
def test_they_say_nothing_about_a_real_cluster(rail: FreeMemory | VirtualCluster) -> None:
    assert check(rail, rehearsed(None).observe()) is None


@pytest.mark.parametrize(("share", "ok"), [(0.11, True), (0.10, True), (0.09, False)])
def test_a_rehearsal_needs_a_tenth_of_the_memory(
    share: float, ok: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(share, tmp_path, monkeypatch)
    assert look(FreeMemory(), rehearsed(tmp_path)).measurement.ok is ok


def test_one_that_runs_short_says_how_much_was_left_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave(0.09, tmp_path, monkeypatch)
    said = look(FreeMemory(), rehearsed(tmp_path)).message()
    assert "0.9 of this machine's 10.0 GiB free, 9.0%" in said
    assert "ran short of memory: end other programs, or start a smaller cluster (--nodes)" in said


def test_memory_that_runs_short_aborts_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(0.5, tmp_path, monkeypatch)
    held, run = HeldFolder(tmp_path / "cluster"), rehearsed(tmp_path / "cluster")
    try:
        guard_before(run, run.targets)  # type: ignore[arg-type]
        with under_guardrails(run):  # type: ignore[arg-type]
            assert run.record.abort.requested is None
            leave(0.09, tmp_path, monkeypatch)
            until(lambda: run.record.abort.requested is not None, 10, "the abort")
    finally:
        held.release()
    assert "this machine ran short of memory" in str(run.record.abort.requested)


def test_a_cluster_that_has_ended_says_why(tmp_path: Path) -> None:
    held, run = HeldFolder(tmp_path), rehearsed(tmp_path)
    assert look(VirtualCluster(), run).measurement.ok
    (tmp_path / ENDED).write_text("nodes died")
    assert look(VirtualCluster(), run).measurement.why == "nodes died"
    held.empty()
    assert look(VirtualCluster(), run).measurement.ok
    held.release()
    assert look(VirtualCluster(), run).measurement.why == f"the virtual cluster in {tmp_path} no longer runs"


def test_one_that_cannot_be_seen_from_here_is_not_taken_for_ended(tmp_path: Path) -> None:
    assert look(VirtualCluster(), rehearsed(tmp_path / "elsewhere")).measurement.ok
