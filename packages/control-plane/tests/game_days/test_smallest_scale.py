"""A game-day of the control plane at the smallest scale that still shows the limiter: two arms, six clients."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from gameday.plan.catalogue import package_plans
from tests.support.control_plane_game_day import play_on_a_lab

_YAML = YAML(typ="safe", pure=True)


@pytest.mark.lab
@pytest.mark.timeout(400)
def test_two_seats_hold_a_storm_and_hold_nothing_of_system_masters(tmp_path: Path) -> None:
    content = _YAML.load(package_plans()["apiserver-list-storm-limited-to-two"])
    # The servers' mean over the whole load needs one scrape before it and one after it, and none in between.
    content["fault"] |= {"clients": 6, "objects": 300, "rounds": 15, "form": "json", "hold": "60s"}
    # What the canary meets on a machine that plays other tests beside this one says nothing of the limiter.
    content["expect"]["api_canary"] = {"p99_within": "20s", "longest_gap": "30s", "errors": 1000, "after_for": "3s"}
    del content["expect"]["alerts"], content["scales"]
    arms = {arm["name"]: arm for arm in content["arms"]["compare"]}
    # A busy machine may lose every scrape of so short a storm, and then nothing is known by the server's metrics.
    by_metrics = ["containment-executing", "containment-memory", "containment-servers-up", "api-canary-latency"]
    arms["limited"] |= {"may_break": by_metrics}
    arms["masters"] |= {"may_break": by_metrics, "must_break": ["containment-executing-mean"]}
    content["arms"] = {"compare": [arms["limited"], arms["masters"]]}
    plan = tmp_path / "plan.yaml"
    with plan.open("w", encoding="utf-8") as file:
        _YAML.dump(content, file)

    played = play_on_a_lab(tmp_path, plan)
    assert played.code == 0, played.output
    assert played.left == []
    (page,) = played.reports.glob("arms-*/comparison.json")
    cells = {row["check"]: row["cells"] for row in json.loads(page.read_bytes())["expectations"]}
    assert [cell["held"] for cell in cells["containment-seats"]] == [1, 1]
    assert [(cell["held"], cell["broken"]) for cell in cells["containment-executing-mean"]] == [(1, 0), (0, 1)]
