"""Which of the GPU operator's operands a reset sends away, and when it does not touch them."""

from __future__ import annotations

import pytest

from gameday.cluster.operands import AWAY, running_operands
from gameday.errors import ForeignPauseError
from gameday.rehearsal.nodes.gpu_operator import DEPLOY, OPERANDS, deploy_labels


def test_of_a_stock_nodes_labels_those_of_operands_that_open_gpus_are_chosen() -> None:
    assert set(running_operands(deploy_labels())) == {f"{DEPLOY}{name}" for name in OPERANDS}


@pytest.mark.parametrize("value", ["false", ""])
def test_an_operand_that_is_off_stays_off(value: str) -> None:
    assert running_operands({f"{DEPLOY}dcgm": value, f"{DEPLOY}driver": "true"}) == ()


def test_one_that_an_earlier_run_left_away_is_ours_to_bring_back() -> None:
    assert running_operands({f"{DEPLOY}dcgm": AWAY}) == (f"{DEPLOY}dcgm",)


def test_one_that_somebody_else_paused_is_named() -> None:
    with pytest.raises(ForeignPauseError, match=r"gpu\.deploy\.dcgm is paused-for-driver-upgrade: somebody else"):
        running_operands({f"{DEPLOY}dcgm": "paused-for-driver-upgrade"})
