"""A clock for faults that are work on a GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.faults.gpu_model import ModelHost


class Hold(threading.Event):
    """Each second that a fault waits passes at once, on the model's clock; `each` happens in it."""

    def __init__(self, host: ModelHost, seconds: int, each: Callable[[int], None] = lambda _: None) -> None:
        super().__init__()
        self._host, self._seconds, self._each, self._waited = host, seconds, each, 0

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout == 1.0, "the temperature is watched each second"
        self._waited += 1
        self._host.clock.pass_by(1.0)
        self._each(self._waited)
        return self._waited > self._seconds
