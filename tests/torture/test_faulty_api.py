"""Whole game-days through an API server that is slow, forgetful and rude: nothing stays in, and nothing is made up."""

from __future__ import annotations

import itertools
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from gameday.history.events import FaultInjected, RunEnded
from gameday.history.journal import read_history
from tests.torture.lanes import Lane
from tests.torture.matrix import PLANS
from tests.torture.proxy import KINDS, Weather

pytestmark = [pytest.mark.gameday, pytest.mark.slow, pytest.mark.timeout(1800)]
_numbers = itertools.count()
_ENDS_WITHIN_S = 400.0

# A belief that is wrong whatever the server says: nobody taints a node because its persistence mode is off.
MISTAKEN = {
    **PLANS["persistence_off"],
    "expect": {
        "alerts": [],
        "taints": [{"key": "trainy.konduktor.ai/faulty", "value": "true", "within": "3s"}],
        "allow_other_alerts": True,
        "workloads": {"running_pods": "any"},
    },
}
BELIEFS = {"true": PLANS["power_cap"], "mistaken": MISTAKEN}


def play(lane: Lane, home: Path, belief: str, weather: Weather) -> tuple[int, str, Path]:
    """(exit code, output, reports)."""
    run = home / f"run-{next(_numbers)}"
    run.mkdir()
    with (run / "plan.yaml").open("w", encoding="utf-8") as out:
        YAML(typ="safe", pure=True).dump({**BELIEFS[belief], "targets": {"names": [lane.node]}}, out)
    lane.proxy.weather = weather
    process = lane.start(run / "plan.yaml", run / "reports")
    try:
        output, _ = process.communicate(timeout=_ENDS_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
        pytest.fail(f"the run did not end, having met {weather.met}:\n{output}")
    finally:
        lane.proxy.weather = None
    return process.returncode, output, run / "reports"


@settings(max_examples=5, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**16),
    share=st.sampled_from([0.05, 0.15, 0.3]),
    kinds=st.sets(st.sampled_from(KINDS), min_size=2),
    belief=st.sampled_from(sorted(BELIEFS)),
)
def test_no_weather_leaves_a_fault_in_or_makes_a_pass_up(
    lane: Lane, tmp_path: Path, seed: int, share: float, kinds: set[str], belief: str
) -> None:
    before = lane.snapshot()
    weather = Weather(seed, share, tuple(sorted(kinds)))
    code, output, reports = play(lane, tmp_path, belief, weather)
    for kind in set(weather.met):
        event(kind)
    assert code != 70, output
    assert "Traceback" not in output, output
    for path in reports.glob("*/history.jsonl"):
        history = read_history(path)
        assert history.of(RunEnded), output
        if code == 0:
            assert belief == "true", output
            assert history.of(FaultInjected), output
    assert lane.reap().alive == ()
    assert lane.settled(before) == [], f"{weather.met}\n{output}"
