"""The model's communicator of NCCL over machines: who waits, who fails, and what its variables do to it."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from gameday.host.base import AllReduceOverNodes, WorkReport
from gameday_rehearsal.nodes.nccl import CONF
from gameday_rehearsal.nodes.work import ModelWork
from tests.rehearsal.nodes.conftest import Rack


def rank(rack: Rack, number: int, unique_id: str = "", **given: Any) -> ModelWork:
    order = AllReduceOverNodes(rank=number, ranks=2, unique_id=unique_id, interface="ib0", **given)
    work = ModelWork(rack.machines[number], 0, order)
    work.begin()
    return work


def both(rack: Rack, **given: Any) -> tuple[ModelWork, ModelWork]:
    first = rank(rack, 0, **given)
    return first, rank(rack, 1, first.report().unique_id, **given)


def figures(report: WorkReport) -> dict[str, Any]:
    return report.model_dump(exclude_defaults=True, exclude={"seconds", "unique_id"})


def test_a_rank_waits_until_all_have_joined_and_all_say_the_same(rack: Rack) -> None:
    first = rank(rack, 0)
    assert figures(first.report()) == {}
    second = rank(rack, 1, first.report().unique_id)
    assert figures(first.report()) == figures(second.report())
    assert first.report().finished and first.report().bus_gbs


def test_an_id_that_nobody_made_is_waited_for_in_vain(rack: Rack) -> None:
    rank(rack, 0)
    assert figures(rank(rack, 1, secrets.token_hex(128)).report()) == {}


def test_a_rank_that_leaves_early_fails_the_other_and_one_that_leaves_late_changes_nothing(rack: Rack) -> None:
    first, second = both(rack)
    second.stop()
    assert first.report().no_link and "remote process" in first.report().error
    first.stop()
    first, second = both(rack)
    done = figures(first.report())
    second.stop()
    assert figures(first.report()) == done


def test_the_jobs_variables_narrow_it_and_the_nodes_file_does_not(rack: Rack) -> None:
    def measured(**given: Any) -> float:
        ranks = both(rack, bytes=1 << 28, **given)
        found = ranks[0].report().bus_gbs or 0.0
        for one in ranks:
            one.stop()
        return found

    full = measured()
    rack.machines[1].extra_files[CONF] = "NCCL_PROTO=LL\n"
    assert measured() == full
    assert measured(environment={"NCCL_PROTO": "LL"}) == pytest.approx(full / 2, rel=0.01)


def test_rdma_ends_by_its_own_timeouts(rack: Rack) -> None:
    given = {"hca": "mlx5_0", "environment": {"NCCL_IB_TIMEOUT": "1", "NCCL_IB_RETRY_CNT": "1"}}
    first, _ = both(rack, **given)
    assert first.report().no_link and "status=12" in first.report().error
