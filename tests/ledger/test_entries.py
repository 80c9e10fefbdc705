"""When a node has all of the quarantine that its entry waits for, and what an entry would delete of others."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

from gameday.ledger.entries import Entry, RestoreNode
from gameday.values.nodes import NodeSnapshot, Taint
from gameday_control_plane.undos import EndApiCanary
from gameday_control_plane.values.api_requests import api_canary_lease

OURS, FOREIGN = "trainy.konduktor.ai/faulty", "example.com/busy"


@pytest.mark.parametrize(
    ("awaited", "cordon", "tainted", "cordoned", "complete"),
    [
        ((OURS,), None, (), False, False),
        ((OURS,), None, (OURS,), False, True),
        ((OURS,), None, (FOREIGN,), True, False),
        ((), False, (OURS,), False, False),  # the plan expects the cordon alone
        ((), False, (), True, True),
        ((OURS,), False, (OURS,), False, False),  # both, of which one is there
        ((OURS,), False, (), True, False),
        ((OURS,), False, (OURS, FOREIGN), True, True),
        ((), None, (FOREIGN,), True, False),  # nothing is expected: anything of ours
        ((), None, (OURS,), False, True),
    ],
)
def test_a_quarantine_is_complete_with_all_that_the_plan_expects_or_with_anything_if_it_expects_nothing(
    awaited: tuple[str, ...], cordon: Literal[False] | None, tainted: tuple[str, ...], cordoned: bool, complete: bool
) -> None:
    restore = RestoreNode(keys=(OURS,), unschedulable=cordon, awaited=awaited)
    node = NodeSnapshot(
        node="n1",
        resource_version="1",
        unschedulable=cordoned,
        taints=tuple(Taint(key=key, value="", effect="NoSchedule") for key in tainted),
        labels={},
        annotations={},
        conditions={},
        boot_id="",
        allocatable_gpus=8,
    )
    assert restore.is_quarantine_complete(node) is complete


@pytest.mark.parametrize(
    ("pod", "lease", "foreign"),
    [
        ("gd-r1-canary", api_canary_lease("r1"), []),
        ("gd-r2-canary", api_canary_lease("r1"), ["gd-r2-canary"]),
        ("gd-r1-canary", api_canary_lease("r2"), [api_canary_lease("r2")]),
        ("gd-r2-canary", "leader", ["gd-r2-canary", "leader"]),
    ],
)
def test_an_api_canary_and_its_lease_are_of_their_run(pod: str, lease: str, foreign: list[str]) -> None:
    undo = EndApiCanary(pod=pod, lease=lease)
    expires = datetime(2030, 1, 1, tzinfo=UTC)
    entry = Entry(id="canary", seq=0, act="a", node=None, undo=undo, expires=expires)
    assert entry.foreign_objects("r1") == foreign
