"""The repair chain of a plan: one repairer, one thing per sign, bounds that fit the run, and a profile's completion."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from pydantic import ValidationError

from gameday.plan.models import Plan, Recovery
from gameday.plan.repair_chain import RepairChain, Sign
from gameday.values.results import RepairHop, RepairKind
from tests.support.runs import loaded_plan, quick_plan

LABEL = {"label": {"key": "example.com/state", "values": ["repairing"]}}


def plan(recover: dict[str, Any], **changes: Any) -> Plan:
    content = quick_plan().plan.model_dump(mode="json", exclude_unset=True) | changes
    return loaded_plan(content | {"recover": recover}).plan


def refusal(model: Any, value: Any) -> str:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(value)
    (error,) = caught.value.errors(include_url=False)
    return str(error["msg"])


def test_a_sign_is_exactly_one_thing() -> None:
    assert Sign.model_validate({"new_boot": True}).source == "new_boot"
    assert Sign.model_validate({"cordoned": False}).source == "cordoned"
    assert refusal(Sign, {"by": "someone"}).startswith("a sign needs one of label, annotation, taint, cordoned")
    both = refusal(Sign, LABEL | {"cordoned": True})
    assert both.startswith("a sign is one thing, not label and cordoned: keep one of label")


@pytest.mark.parametrize(
    ("sign", "kind"),
    [
        ({"new_boot": True}, RepairKind.REBOOT),
        ({"new_node": True}, RepairKind.REPLACEMENT),
        (LABEL | {"kind": "gpu-reset"}, RepairKind.GPU_RESET),
        (LABEL, None),
    ],
)
def test_a_new_boot_and_a_new_node_need_no_kind(sign: dict[str, Any], kind: RepairKind | None) -> None:
    assert Sign.model_validate(sign).implied_kind is kind


def test_only_the_signs_of_repaired_have_a_kind() -> None:
    ready = {"ready": {"within": "1m", "signs": [LABEL | {"kind": "reboot"}]}}
    assert refusal(RepairChain, ready) == "only a sign of the hop `repaired` has a kind"
    repaired = {"repaired": {"within": "1m", "signs": [LABEL]}}
    assert refusal(RepairChain, repaired).startswith("a sign of this hop needs its kind: workload-restart")


@pytest.mark.parametrize(
    ("recover", "message"),
    [
        ({"fault_out": "deadline"}, "this key needs `by: cluster`"),
        ({"node_ends": "out-of-service"}, "this key needs `by: cluster`"),
        ({"hops": {"ready": {"within": "1m"}}}, "this key needs `by: cluster`"),
        ({"by": "cluster", "remediation": "reboot"}, "leave the remediation out"),
        ({"by": "cluster", "fault_during": None, "node_ends": "out-of-service", "hops": {"ready": {"within": "1m"}}},
         "write in `returned` how long to watch"),
    ],
)  # fmt: skip
def test_there_is_one_repairer(recover: dict[str, Any], message: str) -> None:
    assert message in refusal(Recovery, recover)


def test_a_plan_written_out_with_its_defaults_is_the_same_plan() -> None:
    """As the plan.json that a run keeps, which the report reads."""
    usual = quick_plan().plan
    assert Recovery.model_validate(usual.recover.model_dump(mode="json")) == usual.recover
    hands_off = Recovery.model_validate({"by": "cluster", "hops": {"repaired": {"within": "1m", "kinds": ["reboot"]}}})
    assert Recovery.model_validate(hands_off.model_dump(mode="json")) == hands_off


def test_the_hops_together_must_fit_the_run() -> None:
    hops = {"quarantined": {"within": "10m"}, "ready": {"within": "25m"}}
    with pytest.raises(Exception, match="all hops together may take 2100s") as caught:
        plan({"by": "cluster", "hops": hops})
    assert "recover.hops.ready.within" in str(caught.value)


def test_a_cluster_that_must_take_no_hop_is_refused_unless_a_detector_is_named() -> None:
    with pytest.raises(Exception, match="a cluster that must take no hop can fail at none"):
        plan({"by": "cluster"})
    assert plan({"by": "cluster"}, detector="gameday").recover.hops.expected() == []


def test_a_node_that_stays_schedulable_needs_no_repair() -> None:
    with pytest.raises(Exception, match="a node that stays schedulable needs no repair"):
        plan({"by": "cluster", "hops": {"ready": {"within": "1m"}}}, expect={"stays_schedulable_for": "10s"})


def test_hops_come_in_their_order_and_add_up() -> None:
    chain = RepairChain.model_validate({"returned": {"within": "10s"}, "quarantined": {"within": "20s"}})
    assert [hop for hop, _ in chain.expected()] == [RepairHop.QUARANTINED, RepairHop.RETURNED]
    assert chain.longest == timedelta(seconds=30)


def test_a_profile_completes_a_chain_and_the_plans_own_keys_win() -> None:
    profile = RepairChain.model_validate(
        {
            "repair_begun": {"within": "5m", "signs": [LABEL]},
            "repaired": {"within": "10m", "kinds": ["reboot"]},
            "validated": {"within": "9m", "signs": [LABEL]},
        }
    )
    own = RepairChain.model_validate({"repair_begun": {"within": "10s"}, "validated": None, "ready": {"within": "1m"}})
    whole = own.completed_by(profile)
    assert whole.repair_begun is not None
    assert (whole.repair_begun.within, whole.repair_begun.signs) == (
        timedelta(seconds=10),
        profile.repair_begun.signs,  # type: ignore[union-attr]
    )
    assert (whole.repaired, whole.validated) == (profile.repaired, None)
    assert [hop for hop, _ in whole.expected()] == [RepairHop.REPAIR_BEGUN, RepairHop.REPAIRED, RepairHop.READY]


def test_hops_that_only_a_sign_shows_are_named() -> None:
    chain = {
        "repair_begun": {"within": "1m"},
        "ready": {"within": "1m"},
        "validated": {"within": "1m", "signs": [LABEL]},
    }
    assert RepairChain.model_validate(chain).without_signs() == [RepairHop.REPAIR_BEGUN]
