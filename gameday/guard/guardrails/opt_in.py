"""The label by which a node's owner allows game-days, for as long as it is there."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Guardrail, Measurement
from gameday.guard.observation import WATCH_HINT, Observation
from gameday.run.targets import required_label


class OptIn(Guardrail):
    """Requires the label on every target; removing it stops the run. It reads the run's own watch."""

    name: ClassVar[str] = "opt-in"
    interval_s: ClassVar[float | None] = 0.5

    def limit(self, observation: Observation) -> str:
        return f"label {required_label(observation.run)} (profile)"

    def measure(self, observation: Observation) -> Measurement:
        key, _, value = required_label(observation.run).partition("=")
        seen = {target.node: observation.node_now(target.node) for target in observation.targets}
        # The opt-in still holds if the Node object is gone, which may happen when a node is shut down.
        out = [node for node, now in seen.items() if now is not None and now.labels.get(key) != value]
        if out:
            lacks = f"{', '.join(out)} no longer carries {key}={value}"
            return Measurement(False, f"{len(seen) - len(out)} of {len(seen)} targets carry it", lacks)
        if observation.watch_trouble:
            return Measurement(None, "", observation.watch_trouble, WATCH_HINT)
        return Measurement(True, f"on {len(seen)} of {len(seen)} targets")
