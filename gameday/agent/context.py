"""What every role is given: the host, when to end, and the agent's few words to the outside."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from gameday.agent.outcome import write
from gameday.agent.task import Outcome
from gameday.errors import TaskError
from gameday.host.base import Host


def task_error(error: ValueError) -> TaskError:
    """Return the error for a task that cannot be read, without the input that pydantic would quote."""
    if not isinstance(error, ValidationError):
        return TaskError(str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return TaskError(f"{where}: {first['msg']}" if where else first["msg"])


class Ending:
    """Why and when a role has to end; set by a signal or by the hold running out, whichever is first.

    A signal handler may only call `by_signal`, and only while its thread is not
    itself inside `event`: the agent works in a second thread for that reason.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason: Literal["done", "sigterm", "hold"] = "done"
        self._signalled = False

    def by_signal(self, *_: object) -> None:
        # A second signal may arrive inside this very handler, where Event.set() would wait for itself.
        if not self._signalled:
            self._signalled = True
            self._end("sigterm")

    def after(self, seconds: float) -> threading.Timer:
        """End for `hold` in `seconds`; the caller cancels the timer."""
        timer = threading.Timer(seconds, self._end, args=("hold",))
        timer.daemon = True
        timer.start()
        return timer

    def _end(self, reason: Literal["sigterm", "hold"]) -> None:
        if not self.event.is_set():
            self.reason = reason
            self.event.set()


@dataclass(frozen=True)
class Context:
    host: Host
    ending: Ending
    state_dir: Path
    termination_log: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def say(self, note: BaseModel) -> None:
        """One JSON line on stdout, flushed: the pod's log."""
        with self._lock:
            print(note.model_dump_json(), flush=True)

    def become_ready(self) -> None:
        """What the pod's readiness probe looks for."""
        (self.state_dir / "ready").touch()

    def leave_ready(self) -> None:
        (self.state_dir / "ready").unlink(missing_ok=True)

    def write_outcome(self, outcome: Outcome) -> None:
        write(outcome, self.termination_log)
