"""What every guardrail is: a name, a limit for people, and a measurement."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

from gameday.guard.observation import Observation


@dataclass(frozen=True)
class Finding:
    """`ok` None: it could not be measured, and `why` says what was missing. `hint`: what a person can do.

    `nodes` are those that `why` may name beside the targets, so that a report can hide them.
    """

    ok: bool | None
    measured: str
    why: str = ""
    hint: str = ""
    nodes: tuple[str, ...] = ()


class Guardrail(ABC):
    """One reason for which a game-day must not go on.

    A server that does not answer may raise AdapterError out of `measure`: the
    guardrail is then unmeasured, which before the fault is a refusal.
    """

    name: ClassVar[str]
    every_s: ClassVar[float | None] = None
    """Seconds between two looks while the run is on; None: what is true before the fault stays true."""
    asks: ClassVar[bool] = False
    """Whether its later looks wait for a server: the time limit must not wait for it too."""
    needs_targets: ClassVar[bool] = True
    """Whether it says nothing before the targets are chosen."""

    @abstractmethod
    def limit(self, observation: Observation) -> str:
        """The limit in force, and whose it is; empty where nobody set one."""

    @abstractmethod
    def measure(self, observation: Observation) -> Finding:
        """Only called where there is a limit. Raises AdapterError."""
