"""What will happen in the cluster, as data: a copy of the list is a copy of the cluster's future."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.support.virtual_clock import VirtualClock


@dataclass(frozen=True)
class Happening:
    """Something that will happen: the name of an act, and what it is done with."""

    in_s: float
    act: str
    about: tuple[Any, ...]


class ScriptError(BaseException):
    """A happening that failed: a mistake of the script or of the cluster, which no undo may take for the cluster's."""


class Happenings:
    """The cluster's future on a virtual clock."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._acts: dict[str, Callable[..., None]] = {}
        self._due: dict[int, tuple[float, str, tuple[Any, ...]]] = {}
        self._count = 0

    def act(self, act: Callable[..., None]) -> None:
        """Register an act under its own name."""
        self._acts[act.__name__] = act

    def after(self, seconds: float, act: Callable[..., None], *about: Any) -> None:
        """Let a registered act happen so many seconds from now, with what it is about."""
        self._add(Happening(seconds, act.__name__, about))

    def snapshot(self) -> tuple[Happening, ...]:
        """Return what is still to happen, in its order."""
        now = self._clock.monotonic()
        return tuple(Happening(at - now, name, about) for at, name, about in sorted(self._due.values(), key=_time))

    def restore(self, due: tuple[Happening, ...]) -> None:
        """Let all of it happen on this clock."""
        for one in due:
            self._add(one)

    def _add(self, one: Happening) -> None:
        self._count += 1
        number, at = self._count, self._clock.monotonic() + one.in_s
        self._due[number] = (at, one.act, one.about)
        self._clock.at(at, partial(self._happen, number))

    def _happen(self, number: int) -> None:
        _, name, about = self._due.pop(number)
        try:
            self._acts[name](*about)
        except Exception as error:
            raise ScriptError(f"{name}{about}") from error


def _time(due: tuple[float, str, tuple[Any, ...]]) -> float:
    return due[0]
