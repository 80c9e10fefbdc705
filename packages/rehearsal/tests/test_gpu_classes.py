"""The labels of GPU classes that a rehearsal gives its nodes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gameday.values.gpu_class import GPU_CLASS_LABEL
from gameday_rehearsal.seed import seeding
from tests.support.world import World


@pytest.fixture
def names(world: World) -> Iterator[list[str]]:
    """Eight nodes with the names of a rehearsal's."""
    found = [f"gpu-node-{number}" for number in range(1, 9)]
    for name in found:
        world.core.create_node({"metadata": {"name": name}, "spec": {}})
    yield found
    for name in found:
        world.core.delete_node(name)


def test_the_last_quarter_is_fast_and_the_first_node_slow(world: World, names: list[str]) -> None:
    with seeding(world.admin_kubeconfig) as seeder:
        seeder.gpu_classes(len(names))
    classes = [world.core.read_node(name).metadata.labels[GPU_CLASS_LABEL] for name in names]
    assert classes == ["slow", *["typical"] * 5, "fast", "fast"]
