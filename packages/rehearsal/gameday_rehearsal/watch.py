"""Watch what a virtual cluster needs to stay alive, in a thread of its supervisor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from gameday.errors import HostError, MemoryShortError, RehearsalError
from gameday.host.memory import CLUSTERS_NEED, free_memory

_LOOK_EVERY_S = 0.5
"""Seconds between two looks, each a fraction of a millisecond for reading a few small files.

Short enough: on 20 GB, a program that takes a gigabyte a second needs two looks to use what CLUSTERS_NEED leaves.
"""


class Watch:
    """Watches as long as the block runs, and ends the cluster once if it cannot go on."""

    def __init__(self, look: Callable[[], None], end: Callable[[str], None]) -> None:
        """Begin with the block.

        Args:
            look: Raises RehearsalError if the cluster cannot go on.
            end: Called with the error's message; it must not wait for long.
        """
        self.error: RehearsalError | None = None
        """Why the cluster was ended; None while it may go on."""
        self._look, self._end = look, end
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_EVERY_S):
            try:
                self._look()
            except RehearsalError as error:
                self.error = error
                self._end(str(error))
                return


def check_memory() -> None:
    """Raise MemoryShortError if so little memory is left that a virtual cluster has to end at once."""
    try:
        free = free_memory()
    except HostError:  # no Linux
        return
    if free.share < CLUSTERS_NEED:
        raise MemoryShortError(
            f"{free.owner} ran short of memory: {free}, and a virtual cluster ends below {CLUSTERS_NEED:.0%};"
            " end other programs, or start a smaller cluster (--nodes)"
        )
