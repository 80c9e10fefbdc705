"""Thanos and VictoriaMetrics answer 200 with a part of the data: nothing is judged by what is not in it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest

from gameday.cluster.profile import Endpoint
from gameday.cluster.prometheus import Prometheus
from gameday.errors import AdapterError
from tests.cluster.servers.conftest import Answer, Stub

NOW = datetime(2026, 3, 3, tzinfo=UTC)
CALLS: dict[str, tuple[dict[str, object], Callable[[Prometheus], object]]] = {
    "query": ({"resultType": "vector", "result": []}, lambda one: one.query("up")),
    "range": (
        {"resultType": "matrix", "result": []},
        lambda one: one.query_range("up", NOW, NOW, timedelta(seconds=1)),
    ),
    "stored": ({"resultType": "matrix", "result": []}, lambda one: one.stored_samples("up", timedelta(seconds=1), NOW)),
    "alerts": ({"alerts": []}, Prometheus.alerts),
    "rules": ({"groups": []}, Prometheus.rule_groups),
    "recording rules": ({"groups": []}, Prometheus.recording_rules),
    "metadata": ({}, lambda one: one.exposes("up")),
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    ("more", "missing"),
    [
        ({}, ""),
        ({"isPartial": False, "warnings": []}, ""),
        ({"warnings": ["PromQL warning: bucket label le is missing", "PromQL info: maybe no counter"]}, ""),
        ({"warnings": ["receive series from Addr: 10.0.0.1:10901: Unavailable\n<b>"]}, "10901: Unavailable <b>"),
        ({"isPartial": True}, "isPartial is true"),
    ],
)
def test_a_part_of_the_data_is_no_answer(stub: Stub, call: str, more: dict[str, object], missing: str) -> None:
    data, ask = CALLS[call]
    stub.answers = [Answer(body=json.dumps({"status": "success", "data": data, **more}).encode())]
    with Prometheus(Endpoint(url=stub.url)) as prometheus:
        if not missing:
            ask(prometheus)
            return
        with pytest.raises(AdapterError, match=f"only a part of the data: .*{missing}"):
            ask(prometheus)
