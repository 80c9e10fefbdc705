"""The scales of a plan: the same experiment in another size, laid over it as an arm is."""

from __future__ import annotations

import pytest

from gameday.errors import DocumentError
from gameday.plan.load import LoadedPlan
from tests.plan.plans import GOOD, TestXid, parse, problems

ARMS = """\
arms:
  compare:
    - {name: one}
    - {name: two, set: {fault: {xid: 48}}}
"""
SCALED = (
    GOOD
    + ARMS
    + """\
scales:
  talk:
    title: as large as in the talk
    memory: 12GiB
    nodes: 500
    set:
      fault: {xid: 63}
      arms: {compare: [{name: one}, {name: three, set: {fault: {xid: 74}}}]}
"""
)


def xids(loaded: LoadedPlan) -> list[int]:
    return [one.plan.fault.xid for one in (loaded, *loaded.arms) if isinstance(one.plan.fault, TestXid)]


def test_a_scale_is_a_whole_plan_with_a_name_and_arms_of_its_own() -> None:
    loaded = parse(SCALED)
    talk = loaded.of_scale("talk")
    assert (talk.plan.name, talk.plan.title) == ("a-plan-talk", "A plan: as large as in the talk")
    assert [one.plan.name for one in talk.arms] == ["a-plan-talk-one", "a-plan-talk-three"]
    assert xids(talk) == [63, 63, 74]
    assert xids(loaded) == [79, 79, 48]
    assert talk.plan.scales == {}


def test_small_is_the_plan_as_it_is_written() -> None:
    loaded = parse(SCALED)
    assert loaded.of_scale("small") is loaded


def test_a_scale_that_the_plan_lacks_is_named_with_those_it_has() -> None:
    with pytest.raises(DocumentError, match=r"no scale 'tlak'.*\n.*small, talk"):
        parse(SCALED).of_scale("tlak")


@pytest.mark.parametrize(
    ("before", "after", "where", "said"),
    [
        ("xid: 63", "xid: 1000", "fault.xid", "at the scale talk: "),
        ("xid: 74", "xid: 1000", "fault.xid", "at the scale talk: in the arm three: "),
        ("set:\n      fault: {xid: 63}", "set:\n      name: other", "scales.talk.set.name", "cannot set this"),
        ("  talk:", "  small:", "scales.small", "the plan as it is written"),
        ("memory: 12GiB", "memory: lots", "scales.talk.memory", "with its unit"),
    ],
)
def test_a_mistake_is_pointed_at(before: str, after: str, where: str, said: str) -> None:
    (problem,) = problems(SCALED.replace(before, after))
    assert problem.where == where
    assert said in problem.message
    assert problem.line is not None
    assert problem.line > GOOD.count("\n")
