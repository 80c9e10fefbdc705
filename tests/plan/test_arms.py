"""The arms of a plan: what they may change, how, and where a mistake in one is pointed at."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.documents.source import Path, Place, Source
from gameday.errors import DocumentError
from gameday.plan.arms import SETTABLE, Arm, Arms, source_of_arm
from gameday.plan.load import LoadedPlan
from tests.plan.plans import GOOD, TestXid, only, parse, problems

TWO = """\
arms:
  repetitions: 2
  compare:
    - name: reboot
    - name: other
      title: The other one
"""


def with_arms(changes: str = "", text: str = TWO) -> str:
    """Return a plan whose second arm, at line 25, sets what `changes` says, from line 28 on."""
    lines = [f"        {line}\n" for line in changes.splitlines()]
    return GOOD + text + ("      set:\n" + "".join(lines) if lines else "")


def arm(changes: str = "") -> LoadedPlan:
    return parse(with_arms(changes)).arms[1]


def test_each_arm_is_a_whole_plan_with_a_name_of_its_own() -> None:
    loaded = parse(with_arms())
    assert [one.plan.name for one in loaded.arms] == ["a-plan-reboot", "a-plan-other"]
    assert [one.plan.title for one in loaded.arms] == ["A plan: reboot", "A plan: The other one"]
    assert [one.plan.arms for one in loaded.arms] == [None, None]
    assert loaded.played == loaded.arms
    assert {one.sha256 for one in loaded.arms} == {loaded.sha256}


def test_a_plan_without_arms_plays_itself() -> None:
    loaded = parse(GOOD)
    assert loaded.played == (loaded,)
    assert loaded.of_arm(None) is loaded


def test_an_arm_changes_a_key_and_leaves_its_neighbours() -> None:
    fault = arm("fault: {xid: 48}").plan.fault
    assert isinstance(fault, TestXid)
    assert (fault.xid, fault.hold) == (48, timedelta(seconds=60))


def test_a_list_takes_the_place_of_the_plans() -> None:
    plan = arm("expect:\n  alerts: [{name: Other, within: 1s}]").plan
    assert [alert.name for alert in plan.expect.alerts] == ["Other"]
    assert plan.expect.taints


def test_null_takes_a_key_out() -> None:
    assert not arm("expect: {taints: null}").plan.expect.taints


def test_a_fault_of_another_type_takes_the_place_of_the_whole_fault() -> None:
    source = Source({"name": "a", "title": "A", "fault": {"type": "xid", "xid": 79}}, {(): Place((1, 1), (1, 1))})
    merged = source_of_arm(source, 0, Arm(name="b", set={"fault": {"type": "noop"}}))
    assert merged.data["fault"] == {"type": "noop"}


@pytest.mark.parametrize(
    ("changes", "line", "where"),
    [
        ("recover: {remediation: rebot}", 28, "recover.remediation"),
        ("fault: {xid: 1000}", 28, "fault.xid"),
        ("expect:\n  alerts:\n    - {name: Other, within: 1}", 30, "expect.alerts[0].within"),
        ("settings: {flow: true}", 28, "settings.flow"),
        ("fault: null", 25, ""),
    ],
)
def test_a_mistake_in_an_arm_is_pointed_at_in_the_arm(changes: str, line: int, where: str) -> None:
    problem = only(with_arms(changes))
    assert (problem.line, problem.where) == (line, where)
    assert problem.message.startswith("in the arm other: ")


def test_what_does_not_fit_the_plan_any_more_is_said_of_the_arm() -> None:
    problem = only(with_arms("expect: {stays_schedulable_for: 10s}"))
    assert (problem.line, problem.where) == (28, "expect.stays_schedulable_for")


def test_every_arms_mistakes_are_told_at_once() -> None:
    text = TWO.replace("- name: reboot\n", "- name: reboot\n      set: {fault: {xid: 0}}\n")
    found = problems(with_arms("fault: {xid: 0}", text))
    assert [problem.message.partition(":")[0] for problem in found] == ["in the arm reboot", "in the arm other"]


@pytest.mark.parametrize("key", ["name", "targets", "guardrails", "approval", "baseline", "arms", "nonsense"])
def test_what_must_be_alike_in_all_arms_cannot_be_set(key: str) -> None:
    problem = only(with_arms(f"{key}: {{nodes: 2}}"))
    assert (problem.line, problem.where) == (28, f"arms.compare[1].set.{key}")
    assert ", ".join(SETTABLE) in problem.message


def test_a_comparison_has_two_arms_at_least_and_their_names_differ() -> None:
    assert "2 to 8 arms" in only(GOOD + "arms: {compare: [{name: one}]}\n").message
    assert "rename one" in only(GOOD + "arms: {compare: [{name: one}, {name: one}]}\n").message


def test_a_check_cannot_both_be_free_to_break_and_have_to() -> None:
    problem = only(with_arms(text=TWO + "      may_break: [qa]\n      must_break: [qa]\n"))
    assert problem.where == "arms.compare[1].must_break[0]"


def test_the_order_is_turned_round_every_second_time() -> None:
    arms = Arms(compare=tuple(Arm(name=name) for name in "abc"), repetitions=3)
    assert [f"{repetition}{one.name}" for repetition, one in arms.order()] == [
        "1a",
        "1b",
        "1c",
        "2c",
        "2b",
        "2a",
        "3a",
        "3b",
        "3c",
    ]


def test_an_arm_is_asked_for_by_its_name_and_a_typo_is_answered() -> None:
    loaded = parse(with_arms())
    assert loaded.of_arm("other").plan.name == "a-plan-other"
    with pytest.raises(DocumentError, match="did you mean other"):
        loaded.of_arm("othr")
    with pytest.raises(DocumentError, match="deployment `comparison/arms "):
        loaded.of_arm(None)
    with pytest.raises(DocumentError, match="has no arms"):
        parse(GOOD).of_arm("other")


def test_changes_are_told_in_lines() -> None:
    changes = Arm(name="a", set={"fault": {"xid": 48, "on": True}, "expect": {"alerts": [], "canary": None}}).changes()
    assert changes == ["fault.xid: 48", "fault.on: true", "expect.alerts: []", "expect.canary: taken out"]


KEYS = st.sampled_from(["a", "b", "c"])
VALUES = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2), lambda inner: st.dictionaries(KEYS, inner, max_size=3)
)
MAPPINGS = st.dictionaries(KEYS, VALUES, max_size=3)


def merged(base: dict[str, object], patch: dict[str, object]) -> Source:
    """Merge two mappings as a plan's `fault`, every place in it known."""
    places = {path: Place((1, 1), (1, 1)) for path in [(), ("fault",), *(("fault", *p) for p in paths(base))]}
    at: Path = ("arms", "compare", 0, "set", "fault")
    places |= {(*at, *path): Place((2, 1), (2, 1)) for path in [(), *paths(patch)]}
    source = Source({"name": "a", "title": "A", "fault": base}, places)
    return source_of_arm(source, 0, Arm(name="b", set={"fault": patch}))


def paths(value: object) -> list[Path]:
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, inner in inside for path in [(key,), *((key, *rest) for rest in paths(inner))]]


@given(MAPPINGS, MAPPINGS)
def test_every_value_is_the_arms_where_it_sets_one_and_else_the_plans(
    base: dict[str, object], patch: dict[str, object]
) -> None:
    source = merged(base, patch)
    for path in paths(source.data["fault"]):
        at = ("fault", *path)
        assert at in source.places
        line = source.places[at].key[0]
        found: object = patch if line == 2 else base
        whole: object = source.data["fault"]
        for step in path:
            found, whole = found[step], whole[step]  # type: ignore[index]
        if not isinstance(whole, dict):
            assert found == whole


@given(MAPPINGS)
def test_an_arm_that_sets_nothing_or_the_same_again_changes_nothing(base: dict[str, object]) -> None:
    assert merged(base, {}).data["fault"] == base
    assert merged(base, base).data["fault"] == base


@pytest.mark.parametrize("key", ["api_servers", "balance", "cluster"])
def test_what_needs_another_lab_cannot_differ_between_arms(key: str) -> None:
    problem = only(with_arms(f"rehearsal: {{{key}: lab}}"))
    assert problem.where == f"arms.compare[1].set.rehearsal.{key}"
    assert (
        "can change api_server_memory, api_server_release, controller_manager_qps, environment, flags"
        in problem.message
    )


RATIO = "{figure: median, of: other, against: reboot, at_least: 0.5, at_most: 2}"


@pytest.mark.parametrize(
    ("ratio", "where", "says"),
    [
        (RATIO.replace("other", "nobody"), "of", "choose other, reboot"),
        (RATIO.replace("other", "reboot"), "against", "name another one"),
        (RATIO.replace("at_most: 2", "at_most: 0.1"), "at_least", "swap the two"),
        ("{figure: median, of: other, against: reboot}", "figure", "without a bound"),
    ],
)
def test_a_ratio_that_can_hold_nothing_is_refused(ratio: str, where: str, says: str) -> None:
    problem = only(with_arms(text=TWO.replace("arms:\n", f"arms:\n  expect: [{ratio}]\n")))
    assert problem.where == f"arms.expect[0].{where}"
    assert says in problem.message


def test_a_ratio_holds_within_its_bound_only() -> None:
    arms = parse(with_arms(text=TWO.replace("arms:\n", f"arms:\n  expect: [{RATIO}]\n"))).plan.arms
    assert arms
    (expected,) = arms.expect
    assert [expected.holds(ratio) for ratio in (0.49, 0.5, 2, 2.01)] == [False, True, True, False]
    assert expected.bound == "0.5 to 2"
