"""A process that dies before or after any of its requests: the next one goes on, and nothing is done twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from gameday.agent.task import GpuPodsNote
from gameday.xid.catalogue import Remedy
from gameday_health.episodes.model import Episode, State
from gameday_health.episodes.work import EpisodeWork
from tests.health.episodes.conftest import OURS, PARTLY, Agents, Ward, boot, finish, others, two_pods, xid


class Died(BaseException):
    """A crash that no `except Exception` catches, as a kill."""


def dies_at(work: EpisodeWork, act: int, *, after: bool) -> None:
    """Let the process die at its n-th write, before the server has it or right after."""
    left = [act]

    def mortal(call: Callable[..., Any], is_write: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*args: Any, **options: Any) -> Any:
            if not is_write(*args):
                return call(*args, **options)
            left[0] -= 1
            if left[0] < 0 and not after:
                raise Died
            answer = call(*args, **options)
            if left[0] < 0:
                raise Died
            return answer

        return wrapped

    request = work.api.request
    work.api.request = mortal(request, lambda method, path, *_: method != "GET" and "leases" not in path)  # type: ignore[method-assign]
    kubernetes = work.kubernetes
    work.kubernetes = Mortal(kubernetes, mortal(kubernetes.create_pod, lambda *_: True))  # type: ignore[assignment]


class Mortal:
    """The cluster's adapter, whose creation of pods may be the last thing that the process does."""

    def __init__(self, kubernetes: Any, create_pod: Callable[..., Any]) -> None:
        self._kubernetes = kubernetes
        self.create_pod = create_pod

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kubernetes, name)


def play(ward: Ward, agents: Agents, act: int, *, after: bool, **policy: Any) -> tuple[Episode, bool]:
    """Work an episode off with a crash at one write; return its record, and whether the crash came."""
    ward.open()
    died = False
    with ward.work(**policy) as work:
        dies_at(work, act, after=after)
        try:
            finish(work)
        except Died:
            died = True
    # The claim of the dead one is given back above; that it is waited for otherwise is a test of its own.
    return (ward.work_off(**policy) if died else ward.episode), died


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("remedy", [Remedy.GPU_RESET, Remedy.REBOOT])
def test_a_crash_at_any_write_repairs_once_and_returns_once(
    ward: Ward, agents: Agents, remedy: Remedy, after: bool
) -> None:
    died, act = True, 0
    while died:
        ward.quarantine(xid(95, remedy))
        agents.made.clear()
        episode, died = play(ward, agents, act, after=after)
        assert episode.state is State.RETURNED, (act, episode.why)
        assert agents.actions() == [str(remedy)], act
        assert OURS["key"] not in ward.taint_keys() and ward.label() is None
        act += 1
    assert act > 12


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_never_switches_a_machine_twice(
    ward: Ward, agents: Agents, after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordered: list[str] = []

    def switch(_bmc: object, node: str) -> str:
        ordered.append(node)
        boot(ward.world, node, "b2")
        return "ordered"

    monkeypatch.setattr("gameday_health.episodes.acts.power_cycle", switch)
    ladder = [{"repair": "power-cycle", "within": "10s"}]
    policy = {"ladder": ladder, "bmc": {"endpoint": {"url": "http://127.0.0.1:9"}}}
    died, act, ends = True, 0, set()
    while died:
        ward.quarantine()
        episode, died = play(ward, agents, act, after=after, **policy)
        ends.add(episode.state)
        assert ordered.count(ward.node) <= 1, act
        act += 1
    # A crash right after the intent costs the attempt, as nobody can know whether the BMC has the order.
    assert ends == ({State.RETURNED, State.HANDED_OVER} if after else {State.RETURNED})


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_never_returns_a_node_that_fails_qa(ward: Ward, agents: Agents, after: bool) -> None:
    agents.answers["qa"] = "ecc: 3 errors"
    died, act = True, 0
    while died:
        ward.quarantine()
        agents.made.clear()
        episode, died = play(ward, agents, act, after=after)
        assert episode.state is State.HANDED_OVER, (act, episode.why)
        assert agents.actions() == ["gpu-reset", "driver-restart", "reboot"], act
        assert ward.taint_keys() == [OURS["key"]]
        act += 6  # every write of the first rung is played above


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
def test_a_crash_at_any_write_never_disturbs_a_pod_on_another_gpu(
    ward: Ward, agents: Agents, agents_log: list[GpuPodsNote], pods_of_others: Callable[[], None], after: bool
) -> None:
    ladder = [{"repair": "restart-workload", "quiet": "1s"}, {"repair": "gpu-reset", "within": "10s"}]
    died, act = True, 0
    while died:
        ward.quarantine(xid(94, Remedy.NONE))
        agents_log.clear()
        two_pods(ward, agents_log)
        # One that fails at once, so that the reset has its turn as well.
        agents.answers["qa"] = ["ecc: 3 errors", "", ""]
        agents.made.clear()
        episode, died = play(ward, agents, act, after=after, ladder=ladder, drain=PARTLY)
        assert episode.state is State.RETURNED, (act, episode.why)
        assert agents.actions() == ["gpu-reset"] and others(ward) == ["other"], act
        pods_of_others()
        act += 4
    assert act > 12
