from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gameday.cluster.kubernetes import Candidate
from gameday.guard.check import check
from gameday.guard.guardrails.api_errors import ApiErrors
from gameday.guard.guardrails.disruption_budgets import DisruptionBudgets
from gameday.guard.guardrails.domain_share import DomainShare
from gameday.guard.guardrails.duration import MaxDuration
from gameday.guard.guardrails.gpus import Gpus
from gameday.guard.guardrails.nodes import Nodes
from gameday.guard.guardrails.opt_in import OptIn
from gameday.guard.guardrails.pool_share import PoolShare
from gameday.guard.guardrails.protected import Protected
from gameday.guard.guardrails.stop_alerts import StopAlerts
from gameday.guard.guardrails.unhealthy import Unhealthy
from gameday.guard.registry import guardrails
from gameday.run.season_member import SeasonMember
from gameday.values.results import Step
from tests.guard.observations import FakeRun, alerting_rule, budget, firing, node, plan, pod, profile, samples

READY = [Candidate(name=f"n{number}", status="Ready") for number in range(10)]
REPAIRED = {"recover": {"remediation": "gpu-reset"}}


def limited(**limits: Any) -> FakeRun:
    """A run on one node of a cluster with these limits."""
    run = FakeRun(plan(), profile(**limits), node("n0"))
    run.kubernetes.pool = list(READY)
    return run


def found(rail: Any, run: FakeRun) -> bool | None:
    checked = check(rail, run.observe())
    assert checked is not None, "nobody set this limit"
    return checked.measurement.ok


def test_every_guardrail_has_a_file_and_a_name_of_its_own() -> None:
    names = [rail.name for rail in guardrails()]
    modules = [type(rail).__module__ for rail in guardrails()]
    assert len(set(names)) == len(names) == len(set(modules)) >= 13


@pytest.mark.parametrize("rail", [PoolShare(), DomainShare(), Unhealthy(), StopAlerts(), Gpus()])
def test_a_limit_that_nobody_set_is_not_in_force_and_costs_no_request(rail: Any) -> None:
    run = limited()
    assert check(rail, run.observe()) is None
    assert run.kubernetes.asked == []


@pytest.mark.parametrize(("of_plan", "of_profile", "shown"), [(1, 2, "plan"), (3, 2, "profile"), (2, 2, "plan and")])
def test_the_stricter_of_plan_and_profile_holds(of_plan: int, of_profile: int, shown: str) -> None:
    run = FakeRun(plan(guardrails={"max_nodes": of_plan}), profile(max_nodes=of_profile), node("a"))
    checked = check(Nodes(), run.observe())
    assert checked is not None
    assert checked.limit.startswith(f"at most {min(of_plan, of_profile)} ({shown}")


def test_a_plan_cannot_loosen_the_clusters_limit() -> None:
    wide = plan(targets={"nodes": 2}, guardrails={"max_nodes": 5})
    assert found(Nodes(), FakeRun(wide, profile(max_nodes=1), node("a"), node("b"))) is False


@pytest.mark.parametrize(("held", "ok"), [(["a", "b"], True), (["a", "b", "c"], False), (["a", "else", "where"], True)])
def test_the_clusters_limit_counts_the_nodes_that_a_seasons_other_runs_hold(held: list[str], ok: bool) -> None:
    run = FakeRun(plan(), profile(max_nodes=2), node("a"))
    run.member = SeasonMember(season="s", targets=("a",), seed=1, sibling_nodes=frozenset({"b", "c", "d"}))
    run.kubernetes.held = held
    assert found(Nodes(), run) is ok


@pytest.mark.parametrize(("most", "ok"), [(8, True), (7, False)])
def test_all_gpus_of_a_target_count(most: int, ok: bool) -> None:
    assert found(Gpus(), limited(max_gpus=most)) is ok


def test_a_node_without_a_device_plugin_leaves_the_gpus_unmeasured() -> None:
    assert found(Gpus(), FakeRun(plan(), profile(max_gpus=8), node("a", gpus=None))) is None


@pytest.mark.parametrize(("most", "ok"), [(10, True), (9.9, False)])
def test_the_share_of_the_pool(most: float, ok: bool) -> None:
    assert found(PoolShare(), limited(max_pool_percent=most)) is ok


def test_a_pool_nobody_can_find_is_unmeasured() -> None:
    run = limited(max_pool_percent=50)
    run.kubernetes.pool = []
    assert found(PoolShare(), run) is None


@pytest.mark.parametrize(("most", "ok"), [(20, True), (19, False)])
def test_the_share_of_a_rack_or_zone(most: float, ok: bool) -> None:
    run = limited(max_domain_percent=most)
    run.kubernetes.pool = READY[:5]
    assert found(DomainShare(), run) is ok


def test_a_target_without_the_topology_label_is_unmeasured() -> None:
    run = FakeRun(plan(), profile(max_domain_percent=50), node("a", labels={}))
    assert found(DomainShare(), run) is None


def test_a_target_that_takes_its_opt_in_back_trips() -> None:
    run = limited()
    assert found(OptIn(), run) is True
    run.nodes.current["n0"] = node("n0", labels={})
    assert found(OptIn(), run) is False


@pytest.mark.parametrize(
    ("landed", "ok"),
    [
        (pod("dns", "kube-system"), False),
        (pod("proxy", "kube-system", owner="DaemonSet"), True),
        (pod("critical", priority="system-cluster-critical"), False),
        (pod("trainer"), True),
        (pod("mine", "kube-system", labels={"gameday.dev/run": "20260101-000000"}), True),
    ],
    ids=lambda value: value.metadata.name if hasattr(value, "metadata") else str(value),
)
def test_protected_pods_may_not_be_on_a_target(landed: Any, ok: bool) -> None:
    run = limited()
    run.nodes.pods["n0"] = [landed]
    assert found(Protected(), run) is ok


def test_the_plans_protected_namespaces_add_to_the_clusters() -> None:
    run = FakeRun(plan(guardrails={"protected_namespaces": ["training"]}), profile(), node("n0"))
    run.nodes.pods["n0"] = [pod("trainer")]
    assert found(Protected(), run) is False


@pytest.mark.parametrize(("allowed", "ok"), [(2, True), (1, False)])
def test_budgets_need_room_for_every_pod_they_cover(allowed: int, ok: bool) -> None:
    run = FakeRun(plan(**REPAIRED), profile(), node("n0"))
    run.nodes.pods["n0"] = [
        pod("a", labels={"app": "t"}),
        pod("b", labels={"app": "t"}),
        pod("c", labels={"app": "other"}),
    ]
    run.kubernetes.budgets = {"training": [budget("t", allowed, app="t")]}
    assert found(DisruptionBudgets(), run) is ok
    assert run.kubernetes.asked == ["budgets training"]


@pytest.mark.parametrize(
    "parts",
    [
        {"fault": {"type": "node_reboot"}, "guardrails": {"allow_dangerous": ["node_reboot"]}},
        {"fault": {"type": "node_shutdown"}, "guardrails": {"allow_dangerous": ["node_shutdown"]}},
        {"recover": {"remediation": "reboot"}},
    ],
)
def test_what_takes_the_node_down_needs_room_for_pods_without_gpus_too(parts: dict[str, Any]) -> None:
    run = FakeRun(plan(**parts), profile(), node("n0"))
    run.nodes.pods["n0"] = [pod("web", "shop", gpus=0, labels={"app": "web"}, owner="ReplicaSet")]
    run.kubernetes.budgets = {"shop": [budget("web", 0, app="web")]}
    assert found(DisruptionBudgets(), run) is False


def test_pods_that_stay_with_their_node_need_no_room_in_a_budget() -> None:
    run = FakeRun(plan(recover={"remediation": "reboot"}), profile(), node("n0"))
    run.nodes.pods["n0"] = [pod("exporter", labels={"app": "t"}, owner="DaemonSet")]
    run.kubernetes.budgets = {"training": [budget("t", 0, app="t")]}
    assert found(DisruptionBudgets(), run) is True
    assert run.kubernetes.asked == []


def test_a_plan_that_moves_no_pods_asks_no_budgets() -> None:
    assert check(DisruptionBudgets(), limited().observe()) is None


def test_other_nodes_that_are_unhealthy_trip_and_targets_do_not_count() -> None:
    run = limited(max_unhealthy_nodes=1)
    run.servers.prometheus.known = {"count(kube_node_info)": samples("x"), "kube_node_spec_taint": samples("n0", "n1")}
    assert found(Unhealthy(), run) is True
    run.servers.prometheus.known["kube_node_spec_taint"] = samples("n0", "n1", "n2")
    assert found(Unhealthy(), run) is False
    assert run.kubernetes.asked == []


def test_without_kube_state_metrics_the_pool_says_who_is_not_ready() -> None:
    run = limited(max_unhealthy_nodes=0)
    run.servers.prometheus.known = {"gameday_health_quarantined_nodes": samples("x")}
    assert found(Unhealthy(), run) is True
    run.kubernetes.pool[3] = Candidate(name="n3", status="NotReady")
    assert found(Unhealthy(), run) is False


def test_an_unhealthy_fleet_that_nobody_measures_is_unknown() -> None:
    assert found(Unhealthy(), limited(max_unhealthy_nodes=0)) is None


@pytest.mark.parametrize(
    ("alert", "ok"),
    [
        (firing("FleetDown"), False),
        (firing("FleetDown", on="n5"), False),
        (firing("FleetDown", on="n0"), True),
        (firing("Anything", "page", on="n5"), False),
        (firing("Anything", on="n5"), True),
    ],
)
def test_stop_the_line_alerts_of_anything_but_the_targets(alert: Any, ok: bool) -> None:
    run = limited(stop_alerts=["FleetDown"], stop_severities=["page"])
    run.servers.prometheus.active = [alert]
    assert found(StopAlerts(), run) is ok


def test_the_nodes_that_a_finding_names_stand_beside_its_words() -> None:
    run = limited(stop_alerts=["FleetDown"], max_unhealthy_nodes=1)
    run.servers.prometheus.active = [firing("FleetDown", on="n5"), firing("FleetDown")]
    run.servers.prometheus.known = {"count(kube_node_info)": samples("x"), "kube_node_spec_taint": samples("n2", "n1")}
    for rail, nodes in ((StopAlerts(), ("n5",)), (Unhealthy(), ("n1", "n2"))):
        checked = check(rail, run.observe())
        assert checked is not None
        assert checked.measurement.nodes == nodes


def test_a_server_that_does_not_answer_leaves_its_guardrail_unmeasured() -> None:
    run = limited(stop_alerts=["FleetDown"])
    run.servers.prometheus.down = True
    checked = check(StopAlerts(), run.observe())
    assert checked is not None
    assert checked.measurement.ok is None
    assert "connection refused" in checked.measurement.why


@pytest.mark.parametrize(("requests", "failed", "ok"), [(40, 10, True), (40, 11, False), (10, 10, True)])
def test_the_api_servers_failures_are_budgeted_once_there_are_enough(requests: int, failed: int, ok: bool) -> None:
    run = limited(max_api_error_percent=25)
    for _ in range(requests):
        run.kubernetes.counter.add("GET nodes", sent=1, received=1)
    for _ in range(failed):
        run.kubernetes.counter.add_failure()
    assert found(ApiErrors(), run) is ok


def test_failures_that_the_fault_means_to_bring_are_not_budgeted() -> None:
    paused = plan(fault={"type": "etcd_paused", "hold": "2m"}, expect={"api_canary": {}}, rehearsal={"cluster": "lab"})
    run = FakeRun(paused, profile(max_api_error_percent=25), node("a"))
    for _ in range(40):
        run.kubernetes.counter.add("GET nodes", sent=1, received=1)
        run.kubernetes.counter.add_failure()
    checked = check(ApiErrors(), run.observe())
    assert checked is not None
    assert checked.measurement.ok is True
    assert "the fault itself" in checked.limit


def test_the_clusters_longest_run_is_shorter_than_the_plans() -> None:
    run = limited(max_duration="1m")
    assert found(MaxDuration(), run) is True
    run.record.started_boottime_s -= 61
    assert found(MaxDuration(), run) is False


def test_a_clock_that_is_set_back_gives_a_run_no_more_time() -> None:
    run = limited(max_duration="1m")
    run.record.started_boottime_s -= 61
    run.started = datetime.now(UTC) + timedelta(hours=1)
    assert found(MaxDuration(), run) is False


@pytest.mark.parametrize("rail", [OptIn(), Protected()])
def test_what_a_dead_watch_showed_last_is_no_measurement(rail: Any) -> None:
    run = limited(protected_namespaces=["payments"])
    assert found(rail, run) is True
    run.nodes.blind = "watch nodes: 403 nodes is forbidden"
    checked = check(rail, run.observe())
    assert checked is not None
    assert (checked.measurement.ok, checked.measurement.why) == (None, run.nodes.blind)


@pytest.mark.parametrize(
    ("rule", "why"),
    [(None, "no alerting rule FleetDown"), (alerting_rule("FleetDown", "bad"), "does not evaluate: bad")],
)
def test_a_stop_alert_that_can_never_fire_lets_no_run_begin(rule: Any, why: str) -> None:
    run = limited(stop_alerts=["FleetDown"])
    run.servers.prometheus.rules["FleetDown"] = rule
    assert found(StopAlerts(), run) is True, "the fault is in: the rule was looked at before"
    run.record.step = Step.BASELINE
    checked = check(StopAlerts(), run.observe())
    assert checked is not None
    assert checked.measurement.ok is None
    assert why in checked.measurement.why


def test_ill_nodes_that_the_query_does_not_name_are_not_taken_for_none() -> None:
    run = limited(max_unhealthy_nodes=0, unhealthy_query="my_series")
    run.servers.prometheus.known = {"kube_node_info": samples("x"), "my_series": samples("")}
    checked = check(Unhealthy(), run.observe())
    assert checked is not None
    assert (checked.measurement.ok, "no label node" in checked.measurement.why) == (None, True)


def test_a_limit_that_fails_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> str:
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(Nodes, "limit", broken)
    checked = check(Nodes(), limited().observe())
    assert checked is not None
    assert (checked.measurement.ok, checked.measurement.why) == (None, "ZeroDivisionError: a bug of ours")


def test_a_bug_in_a_guardrail_lets_nothing_through(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(OptIn, "measure", broken)
    assert found(OptIn(), limited()) is None
