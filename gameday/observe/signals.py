"""Wait for the signals that the plan expects of a target, and for their end."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from gameday.documents.fields import format_duration
from gameday.expect.base import Signal
from gameday.history.events import SignSeen
from gameday.observe.deadline import await_within
from gameday.observe.device_taints import watch_devices
from gameday.observe.injected_fault import InjectedFault
from gameday.run.node_watch import NodeListener
from gameday.run.run import Run
from gameday.run.steps import StepResult
from gameday.values.nodes import NodeSnapshot


class PodSigns(NodeListener):
    """A listener that notes the signals' signs on a target's pods in the history whenever they change."""

    def __init__(self, run: Run, node: str) -> None:
        self._run = run
        self._node = node
        self._known: Mapping[tuple[str, str], str] = {}
        self._changing = threading.Lock()

    def on_pods(self, node: str, pods: Sequence[Any]) -> None:
        """Note what is new on these pods; the run's thread calls this once, and then the watch's."""
        if node != self._node:
            return
        with self._changing:
            now, at = _signs(self._run, pods), self._run.clock.now()
            for signal, place in sorted(now.keys() | self._known.keys()):
                value = now.get((signal, place))
                if value != self._known.get((signal, place)):
                    self._run.note(SignSeen(node=node, signal=signal, place=place, value=value, at=at))
            self._known = now


def _signs(run: Run, pods: Sequence[Any]) -> dict[tuple[str, str], str]:
    signals = run.plan.expect.signals_awaited()
    return {(one.check, place): value for one in signals for place, value in one.signs_of_pods(pods).items()}


def watch_signals(run: Run, node: str) -> None:
    """Begin to watch the objects that show a target's expected signals, unless the run follows them anyway."""
    watches = {signal.watch for signal in run.plan.expect.signals_awaited()}
    if "devices" in watches:
        watch_devices(run, node)
    if "pods" in watches:
        signs = PodSigns(run, node)
        run.nodes.add_listener(signs)
        signs.on_pods(node, run.nodes.pods_on(node))


def signals_before_fault(run: Run, seen: NodeSnapshot) -> list[str]:
    """Return the signals that the plan expects of the fault and that the node shows before it."""
    pods = run.nodes.pods_on(seen.node)
    found = (one.already(seen, one.signs_of_pods(pods)) for one in run.plan.expect.signals_awaited())
    return list(filter(None, found))


def await_signals(run: Run, result: StepResult, fault: InjectedFault, signals: Iterable[Signal]) -> bool:
    """Wait for each signal within its bound; one that is late or missing breaks the step. Returns True if all came."""
    all_came = True
    for signal in signals:
        what = signal.awaited(fault.node)
        if why := signal.why_unwatched(run.history(), fault.node):
            result.mark_unknown(f"{what}: {why}")
        elif not await_within(run, result, what, signal.within, fault, partial(signal.sightings, node=fault.node)):
            all_came = False
    return all_came


def await_ends(run: Run, result: StepResult, node: str) -> None:
    """Wait until each signal that came and has to go is gone; one that stays breaks the step."""
    for signal in run.plan.expect.signals_awaited():
        if not (signal.ends_within and signal.sightings(run.history(), node)):
            continue
        what = signal.awaited_end(node)
        if not run.wait(what, signal.ends_within, partial(_is_over, run, signal, node)):
            result.mark_broken(f"waited {format_duration(signal.ends_within)} in vain for {what}")


def _is_over(run: Run, signal: Signal, node: str) -> bool | None:
    return signal.is_over(run.history(), node) or None
