"""A whole game-day whose repair is a reboot: the node is as before, though its GPU feature discovery started anew."""

from __future__ import annotations

import pytest

from gameday.history.events import Remediated
from gameday.values.nodes import GFD_TIMESTAMP_LABEL
from tests.game_days.conftest import QUICK, Arena, changed, patient

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.gate
def test_a_rebooted_node_comes_back_as_it_was(clean_arena: Arena) -> None:
    node = sorted(clean_arena.nodes())[-1]
    started = clean_arena.core.read_node(node).metadata.labels[GFD_TIMESTAMP_LABEL]
    plan = changed(changed(QUICK, "recover", {"remediation": "reboot", "within": "90s"}), "targets", {"names": [node]})
    # The pods of a node that reboots are nobody's to keep.
    played = clean_arena.play(patient(changed(plan, "expect.workloads.running_pods", "any")))
    assert played.exit_code == 0, played.output
    (repair,) = played.history.of(Remediated)
    assert (repair.action, repair.ok) == ("reboot", True)
    assert played.verdicts()["node-as-before"] == "held"
    assert clean_arena.core.read_node(node).metadata.labels[GFD_TIMESTAMP_LABEL] != started
