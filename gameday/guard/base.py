"""The base of every guardrail: a name, a limit for people, and a measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gameday.guard.observation import Observation


@dataclass(frozen=True)
class Measurement:
    """The result of one look at a guardrail."""

    ok: bool | None
    """True if the limit is kept; None if it could not be measured."""
    value: str
    """The measured value, for people."""
    why: str = ""
    """The reason if the limit is not kept; the missing part if it could not be measured."""
    hint: str = ""
    """The next step for a person."""
    nodes: tuple[str, ...] = ()
    """Nodes that `why` may name beside the targets, so that a report can hide them."""


class Guardrail(ABC):
    """A reason for which a game-day must not go on."""

    name: ClassVar[str]
    interval_s: ClassVar[float | None] = None
    """Seconds between two looks while the run is on; None: only before the fault."""
    asks_server: ClassVar[bool] = False
    """True if a look waits for a server; such looks have a thread of their own, so that the others are not late."""
    needs_targets: ClassVar[bool] = True
    """True if it can say nothing before the targets are chosen."""

    @abstractmethod
    def limit(self, observation: Observation) -> str:
        """Return the limit in force and who set it; empty if nobody set one."""

    @abstractmethod
    def measure(self, observation: Observation) -> Measurement:
        """Measure; called only if there is a limit.

        Raises:
            AdapterError: A server does not answer. The guardrail is then unmeasured, which before the fault is a
                refusal.
        """
