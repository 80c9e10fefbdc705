"""Real Xids on virtual nodes, whole game-days: the node stays; a detector that taints on each Xid is caught."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected, HopSeen
from gameday.values.results import Hop
from tests.game_days.conftest import Arena, patient

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]

PLANS = Path(__file__).parents[2] / "plans"


@pytest.mark.parametrize(("plan", "crashes"), [("real-xid-31-application-error", 1), ("real-xid-13-burst", 5)])
def test_a_real_crash_costs_no_node_and_is_followed_from_the_kernel_on(
    clean_arena: Arena, plan: str, crashes: int
) -> None:
    played = clean_arena.play(patient(YAML(typ="safe", pure=True).load((PLANS / f"{plan}.yaml").read_text("utf-8"))))
    assert played.exit_code == 0, played.output
    assert set(played.verdicts().values()) == {"held"}
    (injected,) = played.history.of(FaultInjected)
    assert sum("pid=" in line for line in injected.evidence) == crashes
    hops = {hop.hop: hop.at for hop in played.history.of(HopSeen)}
    assert hops[Hop.WRITTEN] <= hops[Hop.LOGGED] < hops[Hop.NVML_EVENT]
    assert hops[Hop.LOGGED] < hops[Hop.IN_LOG_STORE]
