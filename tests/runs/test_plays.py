"""A season of several plays: a seeded order, and a second season that goes on where the first one ended."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from gameday.errors import RefusedError
from gameday.history.events import Aborted
from gameday.runs.assignment import order_of_plays
from gameday.runs.plans import choose_plans
from gameday.runs.season_page import plays_in
from tests.report.run_builder import passing
from tests.runs.row_builders import plan, seen
from tests.runs.test_by_detector import season

CHOSEN, _ = choose_plans(["xid-48-double-bit-ecc", "xid-13-burst", "compare-remediations"], within=None, at_once=4)


def names(plays: int, seed: int = 1, done: dict[str, int] | None = None) -> list[str]:
    return [one.plan.name for one in order_of_plays(CHOSEN, plays, seed, done or {})]


def test_each_plan_is_played_as_often_as_asked_and_arms_once() -> None:
    assert Counter(names(20)) == {"xid-48-double-bit-ecc": 20, "xid-13-burst": 20, "compare-remediations": 1}
    assert names(1) == [one.plan.name for one in CHOSEN]


def test_the_order_is_the_seeds_and_mixed() -> None:
    assert names(20) == names(20)
    assert names(20) != names(20, seed=2)
    order = [name for name in names(20) if name != "compare-remediations"]
    assert sum(a != b for a, b in pairwise(order)) > 8


def test_a_second_season_plays_the_rest_in_the_same_order() -> None:
    first = names(20)[:15]
    rest = names(20, done=dict(Counter(first)))
    assert Counter(first) + Counter(rest) == Counter(names(20))
    assert names(20, done={"xid-48-double-bit-ecc": 20, "xid-13-burst": 25, "compare-remediations": 1}) == []


def test_only_what_was_played_to_its_end_counts_as_played(tmp_path: Path) -> None:
    aborted = [*passing(), seen(5, Aborted(by="operator", why="SIGINT received"))]
    one = season(tmp_path, "s", (plan("a"), passing()), (plan("b"), aborted))
    other = season(tmp_path, "t", (plan("a"), passing()))
    assert plays_in([one, other]) == {"a": 2}


def test_an_earlier_season_without_a_page_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RefusedError) as refused:
        plays_in([tmp_path])
    assert "gameday coverage --again FOLDER" in refused.value.hint
