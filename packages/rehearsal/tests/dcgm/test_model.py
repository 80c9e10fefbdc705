"""The model against what a real DCGM answered."""

from __future__ import annotations

import pytest

from tests.rehearsal.dcgm.model import ModelNode
from tests.rehearsal.dcgm.table import comparable, play, read_table

SCRIPTS = read_table()


@pytest.mark.parametrize("name", SCRIPTS)
def test_the_model_answers_as_the_real_one_did(name: str) -> None:
    node, script = ModelNode(), SCRIPTS[name]
    for number, exchange in enumerate(script):
        found = comparable(script, number, play(node, exchange.do))
        assert found == comparable(script, number, exchange.answer), exchange.do
