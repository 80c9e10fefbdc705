"""A plan that a program has read: it reaches the flow as it is, and Prefect's server only learns that there was one."""

from __future__ import annotations

from gameday.cluster.profile import ClusterProfile
from gameday.detectors.resolve import load_complete_plan
from gameday.flows.arms import comparison
from gameday.flows.choices import GivenPlan, plan_to_play
from gameday.flows.game_day import game_day
from gameday.plan.catalogue import find_plan
from gameday.shipped import shipped

LOADED = load_complete_plan(find_plan("compare-remediations"))


def test_a_given_plan_is_played_and_its_name_is_not_looked_up() -> None:
    assert plan_to_play(GivenPlan(LOADED), "no-such-plan", ClusterProfile.model_construct()) is LOADED


def test_prefect_passes_a_given_plan_on_and_stores_nothing_of_it() -> None:
    given = GivenPlan(LOADED)
    for flow in (game_day, comparison):
        asked = {"plan": "compare-remediations", "given": given}
        assert flow.validate_parameters(asked)["given"] is given
        assert flow.serialize_parameters(asked)["given"] == "<GivenPlan>"


def test_without_one_the_plan_is_read_by_its_name_and_completed_for_the_cluster() -> None:
    cluster = ClusterProfile.model_construct(detector="konduktor")
    loaded = plan_to_play(None, str(shipped("plans") / "detectors" / "konduktor-xid-79.yaml"), cluster)
    assert loaded.plan.expect.alerts
    assert all(alert.name for alert in loaded.plan.expect.alerts)
