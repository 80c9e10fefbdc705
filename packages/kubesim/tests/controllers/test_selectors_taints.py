from __future__ import annotations

from datetime import timedelta

import pytest

from kubesim.controllers.requests import pod_requests
from kubesim.controllers.taints import eviction_time, tolerates, with_own_taints
from kubesim.quantity import amount
from kubesim.selectors import matches_labels, matches_node, only_nodes

from .builders import NOW, STAMP, node, pod

FAULTY = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "covered"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "trainy.konduktor.ai/faulty", "operator": "Exists"}, True),
        ({"key": "trainy.konduktor.ai/faulty", "operator": "Equal", "value": "true"}, True),
        ({"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}, True),
        ({"key": "trainy.konduktor.ai/faulty", "value": "false"}, False),
        ({"key": "trainy.konduktor.ai/faulty", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "other", "operator": "Exists"}, False),
        ({"key": "trainy.konduktor.ai/faulty", "operator": "Gt", "value": "true"}, False),
    ],
)
def test_toleration(toleration: dict[str, str], covered: bool) -> None:
    assert tolerates(toleration, FAULTY) is covered


def test_own_taints_change_and_foreign_ones_stay() -> None:
    old = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule", "timeAdded": STAMP}
    wanted = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
    ]
    own = {"node.kubernetes.io/not-ready"}
    changed = with_own_taints([FAULTY, old], wanted, own, NOW + timedelta(hours=1))
    assert changed is not None
    assert changed[:2] == [FAULTY, old], "the foreign taint and the older timeAdded are untouched"
    assert changed[2] == {**wanted[1], "timeAdded": "2026-01-01T13:00:00Z"}
    assert with_own_taints(changed, wanted, own, NOW) is None
    assert with_own_taints(changed, [], own, NOW) == [FAULTY]


def test_eviction_time() -> None:
    taint = {"key": "k", "effect": "NoExecute", "timeAdded": STAMP}
    late = NOW + timedelta(seconds=30)
    assert eviction_time(pod("a"), [taint], late) == late
    assert eviction_time(pod("a"), [{**taint, "effect": "NoSchedule"}], late) is None
    forever = {"key": "k", "operator": "Exists"}
    assert eviction_time(pod("a", tolerations=[forever]), [taint], late) is None
    minute = {**forever, "tolerationSeconds": 60}
    assert eviction_time(pod("a", tolerations=[minute]), [taint], late) == NOW + timedelta(seconds=60)
    unstamped = {"key": "k", "effect": "NoExecute"}
    assert eviction_time(pod("a", tolerations=[minute]), [unstamped], late) == late + timedelta(seconds=60)


@pytest.mark.parametrize(
    ("expression", "selected"),
    [
        ({"key": "zone", "operator": "In", "values": ["a", "b"]}, True),
        ({"key": "zone", "operator": "NotIn", "values": ["a"]}, False),
        ({"key": "absent", "operator": "NotIn", "values": ["a"]}, True),
        ({"key": "zone", "operator": "Exists"}, True),
        ({"key": "zone", "operator": "DoesNotExist"}, False),
        ({"key": "gpus", "operator": "Gt", "values": ["4"]}, True),
        ({"key": "gpus", "operator": "Lt", "values": ["8"]}, False),
        ({"key": "zone", "operator": "Gt", "values": ["4"]}, False),
    ],
)
def test_node_affinity_operators(expression: dict[str, object], selected: bool) -> None:
    terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}}
    assert matches_node(spec, node("n1", labels={"zone": "a", "gpus": "8"})) is selected


def test_pinned_by_field() -> None:
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
    required = {"nodeSelectorTerms": [term]}
    spec = {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}
    assert only_nodes(spec) == frozenset({"n1"})
    assert matches_node(spec, node("n1"))
    assert not matches_node(spec, node("n2"))
    assert only_nodes({}) is None


def test_label_selectors() -> None:
    labels = {"app": "train"}
    assert not matches_labels(None, labels)
    assert matches_labels({}, labels)
    assert matches_labels({"matchLabels": {"app": "train"}}, labels)
    assert not matches_labels({"matchLabels": {"app": "other"}}, labels)


def test_quantities() -> None:
    assert amount("cpu", "250m") == 250
    assert amount("cpu", 2) == 2000
    assert amount("memory", "1.5Gi") == 1536 * 2**20
    assert amount("nvidia.com/gpu", "8") == 8
    with pytest.raises(ValueError, match="not a Kubernetes quantity"):
        amount("memory", "plenty")


def test_pod_requests_count_init_and_sidecars() -> None:
    def wants(cpu: str, **extra: str) -> dict[str, object]:
        return {"resources": {"requests": {"cpu": cpu}}, **extra}

    spec = {
        "containers": [wants("1"), wants("500m")],
        "initContainers": [wants("100m", restartPolicy="Always"), wants("3")],
    }
    assert pod_requests(spec) == {"cpu": 3100, "pods": 1}
