"""The repair: nothing is rebooted over a pod that has not left, and a node is back when its GPUs are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.history.events import Event, Remediated
from gameday.run.steps import StepResult
from gameday.tasks import qa_node as qa_step
from gameday.tasks import recover as step
from gameday.values.nodes import NodeSnapshot
from tests.guard.observations import node, plan
from tests.support.runs import chosen_target

NODE, TARGET = "n0", chosen_target(node("n0"))
REBOOT: dict[str, Any] = {"remediation": "reboot", "within": "5m"}


def run_of(**more: Any) -> Any:
    """What the repair reads of a run; a wait asks its condition three times and keeps its bound."""
    waits: list[timedelta] = []

    def wait(what: str, within: timedelta, condition: Callable[[], Any]) -> Any:
        waits.append(within)
        return next((found for _ in range(3) if (found := condition()) is not None), None)

    noted: list[Event] = []
    base: dict[str, Any] = {
        "id": "r",
        "plan": plan(recover=REBOOT),
        "intend": lambda *_, **__: None,
        "wait": wait,
        "waits": waits,
        "note": noted.append,
        "noted": noted,
        "problem": lambda what, hint="": noted.append(what),
        "clock": Clock(),
        "kubernetes": SimpleNamespace(clock=Clock(), evict=lambda namespace, name: False),
        "record": SimpleNamespace(
            abort=SimpleNamespace(check=lambda: None),
            begin_step=lambda _: None,
            object_name=lambda purpose, index: f"{purpose}-{index}",
        ),
    }
    return SimpleNamespace(**base | more)


def watch(now: Callable[[str], NodeSnapshot | None]) -> Any:
    """A node watch that answers so."""
    return SimpleNamespace(now=now)


def after_boot(gpus: int | None, ready: str = "True", boot_id: str = "b2") -> NodeSnapshot:
    return node(NODE, gpus=gpus).model_copy(update={"boot_id": boot_id, "conditions": {"Ready": ready}})


@pytest.mark.parametrize(
    ("seen", "back"),
    [
        ([after_boot(0), after_boot(7), after_boot(8)], True),
        ([after_boot(8, "False"), after_boot(8, boot_id="b")], False),
        ([after_boot(7)], False),
        ([None], False),
    ],
    ids=["its-plugin-is-later", "not-yet", "a-gpu-is-missing", "gone"],
)
def test_a_node_is_back_when_it_offers_all_its_gpus_again(seen: list[NodeSnapshot | None], back: bool) -> None:
    states = iter([*seen, *[seen[-1]] * 3])
    assert step._await_reboot(run_of(nodes=watch(lambda _: next(states))), TARGET)[0] is back


def test_gpus_that_only_a_person_brings_back_are_not_waited_for() -> None:
    falls = {"within": "10s", "returns_within": None}
    expect = {"taints": [{"key": "k", "value": "true", "within": "10s"}], "allocatable_falls": falls}
    run = run_of(plan=plan(recover=REBOOT, expect=expect), nodes=watch(lambda _: after_boot(7)))
    assert step._await_reboot(run, TARGET)[0]


@pytest.fixture
def leaving(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Pods that do not leave; nothing is cordoned."""
    pods: list[Any] = []
    monkeypatch.setattr(step, "pods_to_drain", lambda run, node: pods)
    monkeypatch.setattr(step, "_cordon", lambda run, node: None)
    return pods


def stuck(grace_s: int) -> Any:
    return SimpleNamespace(namespace="training", name="llm", uid="u", grace_s=grace_s)


@pytest.mark.parametrize(("grace_s", "within_s"), [(30, 60), (120, 150), (3600, 300)])
def test_pods_may_take_as_long_as_they_may_to_end_and_no_longer_than_the_recovery(
    leaving: list[Any], grace_s: int, within_s: int
) -> None:
    leaving.append(stuck(grace_s))
    run = run_of()
    assert step._drain(run, NODE) == ["training/llm"]
    assert run.waits == [timedelta(seconds=within_s)]


def test_a_node_that_is_not_drained_is_neither_repaired_nor_returned(
    leaving: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    leaving.append(stuck(30))
    monkeypatch.setattr(step, "intend_qa_and_return", lambda *_, **__: None)
    monkeypatch.setattr(step, "run_agent", lambda *_: pytest.fail("the node was repaired under a running pod"))
    run, result = run_of(), StepResult()
    repair = step._remediate(run, result, TARGET)
    (repaired,) = (event for event in run.noted if isinstance(event, Remediated))
    assert (repaired.ok, repaired.detail) == (False, "not drained: training/llm")
    assert result.outcome == "broken"

    kept: list[tuple[str, str]] = []
    monkeypatch.setattr(qa_step, "_passes", lambda *_: pytest.fail("QA would bring it back"))
    monkeypatch.setattr(qa_step, "void_return", lambda *_: None)
    monkeypatch.setattr(qa_step, "note_nodes_after", lambda *_: None)
    monkeypatch.setattr(qa_step, "keep_out_of_service", lambda run, node, why: kept.append((node, why)))
    qa_step.qa_node.fn(run, [repair])
    assert kept == [(NODE, "not drained: training/llm")]
