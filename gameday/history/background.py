"""A thread that reads a history beside the run that writes it."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextvars import copy_context
from types import TracebackType
from typing import Self

_ENDS_WITHIN_S = 10.0
"""Seconds, our own choice. The reader of the view may have stopped reading, and what is viewed has to go on."""


class BackgroundView(ABC):
    """A view in a thread of its own for the length of a block."""

    def __init__(self) -> None:
        self.stopped = threading.Event()
        # A thread begins with an empty context, in which Prefect knows neither its flow run nor the server of it.
        work = copy_context().run
        self._thread = threading.Thread(target=work, args=(self.follow,), name=type(self).__name__, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stopped.set()
        self._thread.join(_ENDS_WITHIN_S)

    @abstractmethod
    def follow(self) -> None:
        """Show what comes at each of `looks`."""

    def looks(self, every_s: float) -> Iterator[None]:
        """Yield every `every_s` seconds until the view has to stop, and once more for the rest."""
        while not self.stopped.wait(every_s):
            yield
        yield
