"""`gameday doctor` on labels that no line of the log store carries: the fix names the profile's keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from gameday.cluster.profile import ClusterProfile
from gameday.errors import AdapterError
from gameday.guard.doctor.logs import check_logs

NOWHERE: Any = {"url": "http://127.0.0.1:9"}
SELECTOR = "set loki_selector and loki_node_label in the cluster profile to what the shipper writes"
OTLP = "for lines shipped by OTLP (Konduktor's stack), set loki_node_label_kind: structured_metadata"


@pytest.mark.parametrize(
    ("kind", "labels", "detail", "fix"),
    [
        ("index", {"app"}, "no line carries k8s_node_name", f"{OTLP}; {SELECTOR}"),
        ("index", {"k8s_node_name"}, "no line carries app", SELECTOR),
        ("index", {"app", "k8s_node_name"}, "app, k8s_node_name", ""),
        ("structured_metadata", {"app"}, "app", ""),
        ("structured_metadata", set(), "no line carries app", SELECTOR),
    ],
)
def test_a_missing_node_label_may_be_structured_metadata(kind: Any, labels: set[str], detail: str, fix: str) -> None:
    profile = ClusterProfile(
        prometheus=NOWHERE,
        alertmanager=NOWHERE,
        loki=NOWHERE,
        loki_selector='{app="dmesg"}',
        loki_node_label_kind=kind,
    )
    loki = SimpleNamespace(labels=lambda: labels, selector_labels=lambda: {"app"}, try_tail=lambda: None)
    run: Any = SimpleNamespace(profile=profile, servers=SimpleNamespace(loki=loki))
    (check,) = [found for found in check_logs(run, ()) if found.name == "labels exist"]
    assert (check.ok, check.detail, check.fix) == (not fix, detail, fix)


@pytest.mark.parametrize("fails", [False, True])
def test_the_tail_is_tried_as_the_controller_opens_it(fails: bool) -> None:
    def tail() -> None:
        if fails:
            raise AdapterError("http://loki", "502: bad gateway")

    profile = ClusterProfile(prometheus=NOWHERE, alertmanager=NOWHERE, loki=NOWHERE)
    loki = SimpleNamespace(labels=lambda: {"a"}, selector_labels=set, try_tail=tail)
    run: Any = SimpleNamespace(profile=profile, servers=SimpleNamespace(loki=loki))
    (check,) = [found for found in check_logs(run, ()) if found.name == "tail"]
    assert check.ok is (None if fails else True)
    assert fails == ("502: bad gateway" in check.detail and "reads query_range every 5 s" in check.detail)
    assert fails == ("websocket of /loki/api/v1/tail" in check.fix)
