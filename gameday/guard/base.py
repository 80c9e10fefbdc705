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
    """Nodes that `why` may name besides the targets, so that a report can hide them."""


class Guardrail(ABC):
    """A reason for which a game-day must not go on."""

    name: ClassVar[str]
    interval_s: ClassVar[float | None] = None
    """Seconds between two looks during the run; None: only before the fault."""
    asks_server: ClassVar[bool] = False
    """True if a look waits for a server; such looks have their own thread, so that they do not delay the others."""
    needs_targets: ClassVar[bool] = True
    """True if it cannot be measured before the targets are chosen."""

    @abstractmethod
    def limit(self, observation: Observation) -> str:
        """Return the current limit and who set it; empty if there is none."""

    @abstractmethod
    def measure(self, observation: Observation) -> Measurement:
        """Measure; called only if there is a limit.

        Raises:
            AdapterError: A server does not answer. The guardrail is then unmeasured, which means a refusal before the
                fault.
        """
