"""Only nodes whose owners said so may be touched, and only for as long as they say so."""

from __future__ import annotations

from typing import ClassVar

from gameday.guard.base import Finding, Guardrail
from gameday.guard.observation import BLIND_HINT, Observation


class OptIn(Guardrail):
    """Read from the run's own watch: taking the label off a target stops the run."""

    name: ClassVar[str] = "opt-in"
    every_s: ClassVar[float | None] = 0.5

    def limit(self, observation: Observation) -> str:
        return f"label {observation.run.profile.opt_in_label} (profile)"

    def measure(self, observation: Observation) -> Finding:
        key, _, value = observation.run.profile.opt_in_label.partition("=")
        seen = {target.node: observation.node_now(target.node) for target in observation.targets}
        # A node whose Node object is gone, as a shut-down one's may be, has taken nothing back.
        out = [node for node, now in seen.items() if now is not None and now.labels.get(key) != value]
        if out:
            lacks = f"{', '.join(out)} no longer carries {key}={value}"
            return Finding(False, f"{len(seen) - len(out)} of {len(seen)} targets carry it", lacks)
        if observation.blind:
            return Finding(None, "", observation.blind, BLIND_HINT)
        return Finding(True, f"on {len(seen)} of {len(seen)} targets")
