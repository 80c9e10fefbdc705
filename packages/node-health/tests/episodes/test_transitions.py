"""The next step of an episode: which rung, when QA, when back, when to a person."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from gameday.xid.catalogue import Remedy
from gameday_health.episodes.model import Episode, Scope, State
from gameday_health.episodes.node import NodeSeen
from gameday_health.episodes.policy import RepairPolicy
from gameday_health.episodes.transitions import (
    Cancel,
    Drain,
    HandOver,
    NodeGone,
    Repair,
    Return,
    Step,
    Validate,
    absorb,
    begin,
    end,
    end_attempt,
    end_drain,
    end_qa,
    marks_of,
    needs_episode,
    next_step,
    open_episode,
)
from tests.health.episodes.worlds import NODE, OTHER_PCI, PCI, T0, fault, with_faults

POLICY = RepairPolicy()


def play(episode: Episode, step: Step, seen: NodeSeen, why_not: str = "", at: datetime = T0) -> Episode:
    """Return the episode after a whole step."""
    episode = begin(episode, step, seen, at)
    match step:
        case Drain(scope=scope):
            return end_drain(episode, scope, why_not, at)
        case Repair():
            return end_attempt(episode, why_not, "", at)
        case Validate():
            return end_qa(episode, why_not, "", at)
        case Return():
            return end(episode, State.RETURNED, "", at)
        case HandOver(why=why):
            return end(episode, State.HANDED_OVER, why, at)
        case _:
            raise AssertionError(step)


def names(step: Step | None) -> str:
    match step:
        case Repair(rung=rung):
            return rung.repair
        case None:
            return "ended"
        case _:
            return type(step).__name__


def path(seen: NodeSeen, failing: set[str], policy: RepairPolicy = POLICY, last: Episode | None = None) -> list[str]:
    """Return the names of all steps of an episode in which the named ones fail."""
    episode, taken = open_episode(seen, last, T0), []
    while step := next_step(episode, seen, policy, T0):
        taken.append(names(step))
        episode = play(episode, step, seen, "it failed" if taken[-1] in failing else "")
    return taken


def test_a_reset_that_holds_leads_back_to_work() -> None:
    assert path(NODE, set()) == ["Drain", "gpu-reset", "Validate", "Return"]


def test_a_fault_that_needs_a_reboot_begins_there() -> None:
    seen = with_faults(fault(79, Remedy.REBOOT))
    assert path(seen, set()) == ["Drain", "reboot", "Validate", "Return"]


def test_the_strongest_of_several_faults_decides() -> None:
    assert path(with_faults(fault(), fault(79, Remedy.REBOOT)), set())[:2] == ["Drain", "reboot"]


@pytest.mark.parametrize("remedy", [Remedy.CONTACT_SUPPORT, Remedy.NONE])
def test_a_fault_that_no_rung_repairs_goes_to_a_person(remedy: Remedy) -> None:
    assert path(with_faults(fault(), fault(64, remedy)), set()) == ["HandOver"]


def test_failed_qa_goes_one_rung_up_and_after_the_last_to_a_person() -> None:
    assert path(NODE, {"Validate"}) == [
        *("Drain", "gpu-reset", "Validate"),
        *("driver-restart", "Validate"),
        *("Drain", "reboot", "Validate", "HandOver"),
    ]


def test_a_rung_that_fails_itself_is_tried_up_to_its_limit() -> None:
    assert path(NODE, {"gpu-reset", "driver-restart", "reboot"}) == [
        *("Drain", "gpu-reset", "driver-restart"),
        *("Drain", "reboot", "reboot", "HandOver"),
    ]


def test_a_node_that_cannot_be_drained_is_not_repaired() -> None:
    assert path(NODE, {"Drain"}) == ["Drain", "HandOver"]


def test_the_attempts_of_an_episode_are_capped() -> None:
    policy = RepairPolicy.model_validate({"attempts": {"per_episode": 2}})
    assert path(NODE, {"Validate"}, policy)[-2:] == ["Validate", "HandOver"]
    assert path(NODE, {"Validate"}, policy).count("Validate") == 2


def proved(seen: NodeSeen = NODE) -> Episode:
    """Return an episode whose node has passed QA."""
    episode = open_episode(seen, None, T0)
    for step in (next_step(episode, seen, POLICY, T0),):
        assert isinstance(step, Drain)
        episode = play(episode, step, seen)
    for _ in range(2):
        step = next_step(episode, seen, POLICY, T0)
        assert step
        episode = play(episode, step, seen)
    assert next_step(episode, seen, POLICY, T0) == Return()
    return episode


def test_a_new_fault_after_qa_goes_one_rung_up() -> None:
    seen = with_faults(fault(), fault(after_s=60))
    episode = absorb(proved(), seen, T0)
    assert names(next_step(episode, seen, POLICY, T0)) == "driver-restart"


def test_a_new_fault_during_a_repair_makes_that_repair_worthless() -> None:
    episode = open_episode(NODE, None, T0)
    episode = play(episode, Drain(Scope.GPU_PODS, "gpu-reset"), NODE)
    episode = begin(episode, Repair(POLICY.ladder[0], 1), NODE, T0)
    seen = with_faults(fault(), fault(after_s=60))
    episode = end_attempt(absorb(episode, seen, T0), "", "", T0)
    assert names(next_step(episode, seen, POLICY, T0)) == "driver-restart"


def test_qa_is_a_proof_of_its_own_boot_only() -> None:
    seen = replace(NODE, boot="b2")
    episode = proved()
    assert next_step(episode, seen, POLICY, T0) == Validate()
    episode = play(episode, Validate(), seen)
    assert next_step(episode, seen, POLICY, T0) == Return()
    assert names(next_step(episode, replace(NODE, boot="b3"), POLICY, T0)) == "driver-restart"


def test_an_attempt_in_progress_goes_on_and_is_no_second_one() -> None:
    episode = play(open_episode(NODE, None, T0), Drain(Scope.GPU_PODS, "gpu-reset"), NODE)
    step = next_step(episode, NODE, POLICY, T0)
    assert step is not None
    begun = begin(episode, step, NODE, T0)
    again = next_step(begun, NODE, POLICY, T0)
    assert again == step and begin(begun, step, NODE, T0) is begun


def test_a_person_who_removes_the_taint_ends_the_episode() -> None:
    assert isinstance(next_step(open_episode(NODE, None, T0), replace(NODE, ours=False), POLICY, T0), Cancel)


def test_a_person_who_uncordons_ends_the_episode() -> None:
    episode = absorb(open_episode(NODE, None, T0), replace(NODE, cordoned=True), T0)
    assert isinstance(next_step(episode, NODE, POLICY, T0), Cancel)


def test_our_own_return_is_recognised_after_a_crash() -> None:
    episode = begin(proved(), Return(), NODE, T0)
    assert next_step(episode, replace(NODE, ours=False), POLICY, T0) == Return()


def test_an_intended_return_is_void_once_a_new_fault_came() -> None:
    seen = with_faults(fault(), fault(after_s=60))
    episode = absorb(begin(proved(), Return(), NODE, T0), seen, T0)
    assert names(next_step(episode, seen, POLICY, T0)) == "driver-restart"


@pytest.mark.parametrize("seen", [None, replace(NODE, uid="u2")])
def test_a_node_that_is_gone_or_replaced_ends_the_episode(seen: NodeSeen | None) -> None:
    assert isinstance(next_step(open_episode(NODE, None, T0), seen, POLICY, T0), NodeGone)


def returned(last: Episode | None, at: datetime, *failing: str) -> Episode:
    episode = open_episode(NODE, last, at)
    while step := next_step(episode, NODE, POLICY, at):
        episode = play(episode, step, NODE, "failed" if names(step) in failing else "", at)
    return episode


def test_a_repeat_offender_skips_the_rung_that_did_not_last() -> None:
    last = returned(None, T0 - timedelta(hours=1))
    assert last.state is State.RETURNED
    assert path(NODE, set(), last=last) == ["Drain", "driver-restart", "Validate", "Return"]


def test_a_node_that_failed_long_ago_is_no_repeat_offender() -> None:
    assert path(NODE, set(), last=returned(None, T0 - timedelta(days=2)))[1] == "gpu-reset"


def test_a_node_that_came_back_too_often_stays_out() -> None:
    last: Episode | None = None
    for hours in (3, 2, 1):
        last = returned(last, T0 - timedelta(hours=hours))
    assert path(NODE, set(), last=last) == ["HandOver"]


def test_a_node_stays_out_after_the_attempts_of_a_day() -> None:
    policy = RepairPolicy.model_validate({"attempts": {"per_day": 3}})
    last = returned(None, T0 - timedelta(hours=1), "gpu-reset", "driver-restart")
    assert len(last.attempts) == 3
    assert path(NODE, set(), policy, last) == ["HandOver"]
    assert path(NODE, set(), policy, returned(None, T0 - timedelta(days=2), "gpu-reset"))[1] == "gpu-reset"


def test_an_episode_begins_only_for_faults_that_none_has_ended_for() -> None:
    assert needs_episode(NODE, None)
    episode = open_episode(NODE, None, T0)
    assert not needs_episode(NODE, episode)
    over = end(episode, State.HANDED_OVER, "", T0)
    assert not needs_episode(NODE, over)
    assert needs_episode(with_faults(fault(after_s=5)), over)
    assert needs_episode(replace(NODE, uid="u2"), over)
    assert not needs_episode(replace(NODE, ours=False), None)
    assert not needs_episode(with_faults(), None)


def test_the_label_shows_the_state_and_goes_with_the_return() -> None:
    episode = open_episode(NODE, None, T0)
    assert marks_of(episode) is None
    step = next_step(episode, NODE, POLICY, T0)
    assert step is not None
    assert marks_of(begin(episode, step, NODE, T0)) == "draining"
    assert marks_of(end(episode, State.HANDED_OVER, "", T0)) == "handed-over"
    assert marks_of(end(episode, State.RETURNED, "", T0)) is None


def test_a_node_is_back_when_it_offers_what_it_had_shares_of_time_included() -> None:
    shared = replace(NODE, gpus=8, gpu_capacity=32, offered_gpus=32)
    assert shared.is_back(32) and not replace(shared, ready=False).is_back(32)
    assert not replace(shared, offered_gpus=28).is_back(32) and replace(shared, offered_gpus=None).is_back(None)
    assert replace(NODE, offered_gpus=8).is_back(7), "the plugin had already given up one of them"


def test_the_breaker_always_lets_one_through() -> None:
    breaker = POLICY.breaker
    assert [breaker.allowed(nodes) for nodes in (0, 1, 8, 16, 1000)] == [1, 1, 2, 4, 5]


def test_a_ladder_names_each_repair_once_and_only_known_ones() -> None:
    for ladder in ([{"repair": "reboot"}, {"repair": "reboot"}], [{"repair": "percussion"}], [{"repair": "none"}], []):
        with pytest.raises(ValueError):
            RepairPolicy.model_validate({"ladder": ladder})


def with_restart(**policy: object) -> RepairPolicy:
    names = ("restart-workload", "gpu-reset", "driver-restart")
    return RepairPolicy.model_validate(
        {"ladder": [{"repair": name} for name in names], "qa": {"burn_in": None}, **policy}
    )


PARTLY = RepairPolicy.model_validate({"drain": {"scope": "faulty-gpu"}, "qa": {"burn_in": None}})


def scopes(seen: NodeSeen, failing: set[str], policy: RepairPolicy) -> list[tuple[str, str]]:
    """Return scope and purpose of each drain of an episode in which the named steps fail."""
    episode, drains = open_episode(seen, None, T0), []
    while step := next_step(episode, seen, policy, T0):
        if isinstance(step, Drain):
            drains.append((str(step.scope), step.before))
        episode = play(episode, step, seen, "it failed" if names(step) in failing else "")
    return drains


def test_with_the_scope_faulty_gpu_others_work_through_a_reset_and_a_qa_without_load() -> None:
    assert path(NODE, set(), PARTLY) == ["Drain", "gpu-reset", "Validate", "Return"]
    assert scopes(NODE, set(), PARTLY) == [("faulty-gpu", "gpu-reset")]


@pytest.mark.parametrize("qa", [{}, {"burn_in": "2s"}, {"burn_in": None, "floors": {"memory_free_mib": 80000}}])
def test_the_others_leave_before_a_qa_that_needs_idle_gpus(qa: dict[str, object]) -> None:
    policy = RepairPolicy.model_validate({"drain": {"scope": "faulty-gpu"}, "qa": qa})
    assert path(NODE, set(), policy) == ["Drain", "gpu-reset", "Drain", "Validate", "Return"]
    assert scopes(NODE, set(), policy) == [("faulty-gpu", "gpu-reset"), ("gpu-pods", "QA")]


def test_others_that_do_not_leave_before_qa_hand_the_node_over() -> None:
    policy = RepairPolicy.model_validate({"drain": {"scope": "faulty-gpu"}, "qa": {"floors": {"gemm_tflops": 1}}})
    episode = open_episode(NODE, None, T0)
    for _ in range(2):
        step = next_step(episode, NODE, policy, T0)
        assert step
        episode = play(episode, step, NODE)
    step = next_step(episode, NODE, policy, T0)
    assert step == Drain(Scope.GPU_PODS, "QA")
    assert names(next_step(play(episode, step, NODE, "one is left"), NODE, policy, T0)) == "HandOver"


def test_every_rung_above_the_reset_empties_the_node() -> None:
    assert scopes(NODE, {"Validate"}, PARTLY) == [
        *(("faulty-gpu", "gpu-reset"), ("gpu-pods", "driver-restart")),
        ("all-pods", "reboot"),
    ]


def test_a_fault_that_names_no_gpu_or_needs_more_than_a_reset_empties_the_node() -> None:
    nameless = fault(after_s=1).model_copy(update={"device": None})
    assert scopes(with_faults(fault(), nameless), set(), PARTLY) == [("gpu-pods", "gpu-reset")]
    assert scopes(with_faults(fault(), fault(79, Remedy.REBOOT)), set(), PARTLY) == [("all-pods", "reboot")]
    only_reset = RepairPolicy.model_validate({"ladder": [{"repair": "gpu-reset"}], "drain": {"scope": "faulty-gpu"}})
    assert scopes(with_faults(fault(79, Remedy.REBOOT)), set(), only_reset) == [("gpu-pods", "gpu-reset")]


def test_a_fault_on_another_gpu_is_drained_for_before_its_reset() -> None:
    episode = play(open_episode(NODE, None, T0), Drain(Scope.FAULTY_GPU, "gpu-reset"), NODE)
    again = with_faults(fault(), fault(after_s=5))
    assert names(next_step(absorb(episode, again, T0), again, PARTLY, T0)) == "gpu-reset"
    elsewhere = with_faults(fault(), fault(after_s=5, device=OTHER_PCI))
    episode = absorb(episode, elsewhere, T0)
    assert next_step(episode, elsewhere, PARTLY, T0) == Drain(Scope.FAULTY_GPU, "gpu-reset")
    episode = play(episode, Drain(Scope.FAULTY_GPU, "gpu-reset"), elsewhere)
    assert episode.drained_gpus == (PCI, OTHER_PCI)
    assert names(next_step(episode, elsewhere, PARTLY, T0)) == "gpu-reset"


NEEDS_NONE = with_faults(fault(94, Remedy.NONE))


def test_a_fault_whose_remedy_is_weaker_than_a_reset_begins_with_its_workload() -> None:
    assert path(NEEDS_NONE, set(), with_restart()) == ["Drain", "restart-workload", "Validate", "Return"]
    assert scopes(NEEDS_NONE, set(), with_restart()) == [("faulty-gpu", "restart-workload")]


def test_after_a_restart_that_did_not_help_the_reset_follows() -> None:
    taken = path(NEEDS_NONE, {"Validate"}, with_restart())
    assert taken[:5] == ["Drain", "restart-workload", "Validate", "Drain", "gpu-reset"]
    assert path(NEEDS_NONE, {"restart-workload"}, with_restart())[:4] == [
        *("Drain", "restart-workload", "Drain", "gpu-reset")
    ]


def test_a_restart_of_the_workload_never_takes_the_place_of_a_repair() -> None:
    assert path(NODE, set(), with_restart())[1] == "gpu-reset"
    assert path(with_faults(fault(94, Remedy.NONE), fault()), set(), with_restart())[1] == "gpu-reset"
    ladder = [{"repair": "restart-workload"}, {"repair": "reboot"}]
    without_reset = RepairPolicy.model_validate({"ladder": ladder})
    assert path(NODE, set(), without_reset)[1] == "reboot" and without_reset.index_of("gpu-reset") == 1
    for wrong in ([ladder[0]], [ladder[1], ladder[0]]):
        with pytest.raises(ValueError, match="repairs no hardware"):
            RepairPolicy.model_validate({"ladder": wrong})


def test_a_repeat_offender_skips_the_restart_of_its_workload() -> None:
    last = open_episode(NEEDS_NONE, None, T0 - timedelta(hours=1))
    while step := next_step(last, NEEDS_NONE, with_restart(), T0):
        last = play(last, step, NEEDS_NONE)
    assert last.rung == "restart-workload" and last.state is State.RETURNED
    assert path(NEEDS_NONE, set(), with_restart(), last)[1] == "gpu-reset"
