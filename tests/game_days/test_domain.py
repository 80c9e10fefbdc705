"""A whole game-day on a failure domain: the shipped plan on half a rack, so that the other half can take the work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected, TargetsChosen
from tests.game_days.conftest import Arena, changed

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(400)]
PLAN = Path(__file__).parents[2] / "plans/rack-loses-power.yaml"


def test_half_a_rack_loses_its_power_and_the_report_names_the_rack(clean_arena: Arena) -> None:
    plan = YAML(typ="safe", pure=True).load(PLAN)
    played = clean_arena.play(changed(changed(plan, "targets.domain.percent", 50), "qa.burn_in", None))
    assert played.exit_code == 0, played.output
    (chosen,) = played.history.of(TargetsChosen)
    assert chosen.domain is not None
    assert (str(chosen.domain), chosen.domain.nodes) == ("topology.kubernetes.io/rack=rack-000", 4)
    struck = {fault.target.node for fault in played.history.of(FaultInjected)}
    assert len(struck) == 2
    assert struck == {target.node for target in chosen.targets}
    assert "(2 of the 4 GPU nodes of topology.kubernetes.io/rack=rack-000)" in played.output
    assert played.folder is not None
    page = (played.folder / "report.html").read_text()
    assert "The domain <strong>rack-000</strong>" in page
    assert "was struck: 2 of its 4 GPU nodes." in page
    (nodes,) = (
        row
        for row in json.loads((played.folder / "report.json").read_text())["sections"]["blast-radius"]["rows"]
        if row["what"] == "Nodes with a fault"
    )
    assert (nodes["planned"], nodes["over"]) == ("2", False)
