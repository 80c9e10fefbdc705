"""The GPU operator's operands are away while a GPU is reset, and back whatever becomes of the repair."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest
from kubernetes.client.exceptions import ApiException

from gameday.cluster.operands import AWAY
from gameday.cluster.watch import Follower
from gameday_health.episodes.acts import carry_out
from gameday_health.episodes.model import State
from gameday_health.episodes.transitions import Repair
from tests.health.episodes.conftest import Agents, Ward, others

PLUGIN, DRIVER = "nvidia.com/gpu.deploy.device-plugin", "nvidia.com/gpu.deploy.driver"
UPGRADE = "paused-for-driver-upgrade"

pytestmark = pytest.mark.usefixtures("pods_of_others")


def label(ward: Ward, **labels: str) -> None:
    keys = {"plugin": PLUGIN, "driver": DRIVER}
    body = {"metadata": {"labels": {keys[name]: value for name, value in labels.items()}}}
    ward.world.core.patch_node(ward.node, body)


def operands(ward: Ward) -> tuple[str | None, str | None]:
    labels = ward.world.core.read_node(ward.node).metadata.labels
    return labels.get(PLUGIN), labels.get(DRIVER)


@contextmanager
def device_plugin(ward: Ward, *, leaves: bool = True, as_shipped: bool = False) -> Iterator[list[str | None]]:
    """A DaemonSet's pod on the node, which goes when its label does; yields the values that the label had, in order."""
    tolerated = {"key": "nvidia.com/gpu", "operator": "Exists"} if as_shipped else {"operator": "Exists"}
    placed = {"nodeName": ward.node, "nodeSelector": {PLUGIN: "true"}, "tolerations": [tolerated]}
    spec = {**placed, "terminationGracePeriodSeconds": 0}
    pod = {"metadata": {"name": "plugin"}, "spec": {**spec, "containers": [{"name": "main", "image": "i"}]}}
    ward.world.core.create_namespaced_pod("default", pod)
    values: list[str | None] = []

    def changed(_: str, node: object) -> None:
        value = node.metadata.labels.get(PLUGIN)  # type: ignore[attr-defined]
        if values[-1:] != [value]:
            values.append(value)
        if leaves and value != "true":
            with suppress(ApiException):
                ward.world.core.delete_namespaced_pod("plugin", "default", grace_period_seconds=0)

    with Follower(ward.world.core.list_node, changed, field_selector=f"metadata.name={ward.node}") as nodes:
        assert nodes.wait_synced(20)
        yield values


def test_operands_are_gone_before_the_reset_and_their_labels_are_as_before_after_it(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, plugin="true", driver="true")
    ward.open()
    during: list[object] = []
    agents.before["remediate"] = lambda: during.extend((operands(ward), others(ward), ward.episode.operands_away))
    with device_plugin(ward) as values:
        episode = ward.work_off()
    assert episode.state is State.RETURNED
    assert during == [(AWAY, "true"), [], (PLUGIN,)]
    assert values == ["true", AWAY, "true"]
    assert operands(ward) == ("true", "true") and episode.operands_away == ()


def test_a_node_without_the_operators_labels_is_left_as_it_is(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, driver="true")
    ward.open()
    assert ward.work_off().state is State.RETURNED
    assert operands(ward) == (None, "true")


def test_an_operand_that_stays_fails_the_reset_and_the_ladder_goes_on(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, plugin="true")
    ward.open()
    ladder = [{"repair": "gpu-reset", "within": "1s", "limit": 1}, {"repair": "driver-restart", "within": "10s"}]
    with device_plugin(ward, leaves=False):
        episode = ward.work_off(ladder=ladder)
    assert [attempt.outcome for attempt in episode.attempts] == ["failed", "passed"]
    assert episode.attempts[0].why == "the GPU operator's operands have not left: plugin"
    assert agents.actions() == ["driver-restart"] and operands(ward)[0] == "true"


def test_operands_that_the_quarantine_would_keep_away_are_not_moved_and_the_ladder_goes_on(
    ward, agents: Agents
) -> None:
    ward.quarantine()
    label(ward, plugin="true")
    ward.open()
    ladder = [{"repair": "gpu-reset", "within": "10s", "limit": 1}, {"repair": "driver-restart", "within": "10s"}]
    with device_plugin(ward, as_shipped=True) as values:
        episode = ward.work_off(ladder=ladder)
    assert [attempt.outcome for attempt in episode.attempts] == ["failed", "passed"]
    assert "they do not tolerate trainy.konduktor.ai/faulty=true:NoSchedule; kubectl patch" in episode.attempts[0].why
    assert agents.actions() == ["driver-restart"]
    assert values == ["true"]


def test_during_a_driver_upgrade_no_gpu_is_reset(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, plugin=UPGRADE)
    ward.open()
    episode = ward.work_off(ladder=[{"repair": "gpu-reset", "within": "10s", "limit": 1}])
    assert episode.state is State.HANDED_OVER and agents.actions() == []
    assert UPGRADE in episode.attempts[0].why and operands(ward)[0] == UPGRADE


def test_a_person_who_takes_over_during_the_reset_finds_the_operands_back(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, plugin="true")
    ward.open()
    agents.answers["remediate"] = None
    agents.before["remediate"] = lambda: ward.world.core.patch_node(ward.node, {"spec": {"taints": None}})
    assert ward.work_off().state is State.CANCELLED
    assert operands(ward)[0] == "true" and ward.episode.operands_away == ()


def test_a_process_that_finds_operands_away_brings_them_back(ward, agents: Agents) -> None:
    ward.quarantine()
    label(ward, plugin="true")
    ward.open()

    class KilledError(Exception):
        pass

    def killed(*_: object, **__: object) -> None:
        raise KilledError

    with ward.work() as work:
        while not isinstance(step := work.next_step(), Repair):
            assert step
            carry_out(work, step)
        work.run_agent = killed  # type: ignore[method-assign, assignment]
        with pytest.raises(KilledError):
            carry_out(work, step)
    assert operands(ward)[0] == AWAY and ward.episode.operands_away == (PLUGIN,)
    assert ward.work_off().state is State.RETURNED
    assert operands(ward)[0] == "true" and ward.episode.operands_away == ()
