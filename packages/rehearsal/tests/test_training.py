"""The training jobs of a rehearsal: of a size that a job controller counts quickly, and waited for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from gameday_rehearsal.seed import Seeder, seeding
from tests.support.world import World

NAMESPACE = "training"


@pytest.fixture
def seeder(world: World) -> Iterator[Seeder]:
    with seeding(world.admin_kubeconfig) as found:
        found.rights()
        yield found
    world.batch.delete_collection_namespaced_job(NAMESPACE)


def test_many_nodes_train_in_several_jobs(world: World, seeder: Seeder) -> None:
    seeder.training(1100, 8)
    jobs = {job.metadata.name: job.spec for job in world.batch.list_namespaced_job(NAMESPACE).items}
    assert {name: spec.parallelism for name, spec in jobs.items() if "pretrain" in name} == {
        "pretrain": 512,
        "pretrain-512": 512,
        "pretrain-1024": 76,
    }
    assert {spec.template.metadata.labels["app"] for spec in jobs.values()} == {"pretrain", "finetune"}


def test_the_training_is_awaited_until_all_its_pods_run(world: World, seeder: Seeder) -> None:
    asked = seeder.training(2, 4)
    assert asked == {"pretrain": 2, "finetune": 2}
    for job in world.batch.list_namespaced_job(NAMESPACE).items:
        job.status.ready = job.status.active = 2
        world.batch.replace_namespaced_job_status(job.metadata.name, NAMESPACE, job)
    seeder.await_training(asked)


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 8), (2000, 1)])
def test_nobody_waits_where_nothing_trains(seeder: Seeder, nodes: int, gpus: int) -> None:
    seeder.await_training(seeder.training(nodes, gpus))
