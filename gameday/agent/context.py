"""The context of every role: the host, the reason to end, and the agent's outputs."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ValidationError

from gameday.agent.task import AgentResult
from gameday.agent.termination_message import write
from gameday.errors import TaskError
from gameday.host.base import Host


def task_error(error: ValueError) -> TaskError:
    """Return a TaskError for an invalid task, without the input that pydantic would quote."""
    if not isinstance(error, ValidationError):
        return TaskError(str(error))
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return TaskError(f"{where}: {first['msg']}" if where else first["msg"])


class Ending:
    """The reason why a role has to end, and an event for it: a signal, or the end of the hold.

    A signal handler may only call `by_signal`, and only while its thread is not inside `event`. That is why the agent
    works in a second thread.
    """

    def __init__(self) -> None:
        self.event = threading.Event()
        self.reason: Literal["done", "sigterm", "hold"] = "done"
        self._signalled = False

    def by_signal(self, *_: object) -> None:
        """End because of a signal; the handler of SIGTERM and SIGINT."""
        # A second signal may interrupt this handler, and Event.set() would then wait for itself.
        if not self._signalled:
            self._signalled = True
            self._end("sigterm")

    def after(self, seconds: float) -> threading.Timer:
        """Start a timer that ends the role because its hold is over; the caller has to cancel it."""
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
    """The host, the reason to end, and the agent's outputs."""

    host: Host
    ending: Ending
    state_dir: Path
    """A folder that outlives a restart of the container, but not the pod."""
    termination_log: Path
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def print_note(self, note: BaseModel) -> None:
        """Print a note to the pod's log, as one line of JSON."""
        with self._lock:
            print(note.model_dump_json(), flush=True)

    def become_ready(self) -> None:
        """Make the pod Ready: its readiness probe looks for this file."""
        (self.state_dir / "ready").touch()

    def end_ready(self) -> None:
        """Make the pod not Ready."""
        (self.state_dir / "ready").unlink(missing_ok=True)

    def write_result(self, result: AgentResult) -> None:
        """Write the termination message. Raises OSError."""
        write(result, self.termination_log)
