"""The moments of a run: each happens in one place, and the steps name nothing of the control plane."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gameday.tasks import moments
from gameday.tasks.moments import Moment

TASKS = Path(moments.__file__).parents[1]
STEPS = ("baseline", "inject", "await_alert", "verify_taint", "recover", "qa_node")
SOURCES = {name: (TASKS / f"{name}.py").read_text(encoding="utf-8") for name in STEPS}


def test_each_moment_happens_in_one_place() -> None:
    happens = re.findall(r"happen\(Moment\.(\w+),", "".join(SOURCES.values()))
    assert sorted(happens) == sorted(one.name for one in Moment)


@pytest.mark.parametrize("moment", Moment)
def test_somebody_acts_at_each_moment(moment: Moment) -> None:
    assert moments._acts()[moment]


@pytest.mark.parametrize("step", ["inject", "verify_taint", "recover", "qa_node"])
def test_a_step_names_nothing_of_the_control_plane(step: str) -> None:
    named = r"(?i)api_?(?:server|canary|client)|flow_control|control_plane|webhook"
    assert re.findall(named, SOURCES[step]) == []
