"""The beginning of a run's record: runs that start in the same second are different runs."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import LeaseHeldError
from gameday.ledger.lease import CLUSTER_LEASE, Leases
from gameday.run.record import HISTORY_FILE, new_run_id, start_record
from tests.support.runs import quick_plan
from tests.support.scripted.administrator import ScriptedWorld

AT_ONCE = 8


def test_runs_that_start_at_the_same_moment_have_folders_of_their_own(tmp_path: Path) -> None:
    loaded, together = quick_plan(), Barrier(AT_ONCE)

    def start(_: int) -> str:
        together.wait()
        record = start_record(new_run_id(), loaded, tmp_path)
        record.journal.close()
        return record.id

    with ThreadPoolExecutor(AT_ONCE) as pool:
        ids = list(pool.map(start, range(AT_ONCE)))
    assert {folder.name for folder in tmp_path.iterdir()} == set(ids)
    assert len(set(ids)) == AT_ONCE
    assert all((tmp_path / id / HISTORY_FILE).is_file() for id in ids)


def test_a_run_never_enters_another_runs_folder(tmp_path: Path) -> None:
    start_record("twin", quick_plan(), tmp_path).journal.close()
    with pytest.raises(FileExistsError):
        start_record("twin", quick_plan(), tmp_path)


def test_of_two_machines_that_start_in_the_same_second_the_refused_one_is_told_of_another_run(
    world: ScriptedWorld, runner: Kubernetes
) -> None:
    first, second = new_run_id(), new_run_id()
    Leases(runner, first, lambda _: None).acquire(CLUSTER_LEASE)
    with pytest.raises(LeaseHeldError) as refused:
        Leases(runner, second, lambda _: None).acquire(CLUSTER_LEASE)
    assert refused.value.holder == first != second
