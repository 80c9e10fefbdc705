from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.torture.lanes import Lane, arena


@pytest.fixture(scope="package")
def torture_lane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lane]:
    """A cluster that ends with the last of these tests, as its servers would slow the other game-days down."""
    with arena(tmp_path_factory.mktemp("torture"), 1) as lanes:
        yield lanes[0]


@pytest.fixture
def lane(torture_lane: Lane) -> Iterator[Lane]:
    """Holds every test to the promise: after one visit of the reaper nothing is left."""
    before = torture_lane.snapshot()
    yield torture_lane
    torture_lane.proxy.arm(None)
    torture_lane.proxy.weather = None
    assert torture_lane.reap().alive == ()
    assert torture_lane.settled(before) == []
