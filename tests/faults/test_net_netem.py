"""Netem."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.faults.net_netem import NetemFault, NetemParameters
from tests.faults import recorded_iproute2 as recorded

NETEM = NetemParameters(interface="ib0", delay=timedelta(milliseconds=50), jitter=timedelta(milliseconds=10), loss=0.01)


@pytest.mark.parametrize(
    ("recorded_json", "wrong"),
    [
        (recorded.NETEM, ""),
        (recorded.NETEM.replace("0.05,", "0.2,"), "delay is 0.2"),
        (recorded.NETEM.replace('"loss":0.01', '"loss":0.1'), "loss is 0.1"),
    ],
)
def test_netem_is_read_back_as_iproute2_writes_it(recorded_json: str, wrong: str) -> None:
    assert wrong in NetemFault().mismatch(NETEM, json.loads(recorded_json)[0]["options"])
    assert bool(wrong) == bool(NetemFault().mismatch(NETEM, json.loads(recorded_json)[0]["options"]))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"delay": timedelta(), "jitter": timedelta(), "loss": 0.0}, "does nothing"),
        ({"jitter": timedelta(seconds=1)}, "more than the delay"),
        ({"loss": 1.5}, "at most 100%"),
        ({"interface": "a" * 16}, "at most 15|pattern"),
        ({"interface": "-rf"}, "pattern"),
        ({"interface": "ib0; reboot"}, "pattern"),
        ({"rate_mbit": 0}, "greater"),
    ],
)
def test_parameters_out_of_bounds_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        NetemParameters.model_validate(NETEM.model_dump() | changes)
