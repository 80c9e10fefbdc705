"""Restart crashed components, as kubelet does with a control plane's static pods, and publish which of them run.

A component can be stopped, killed, restarted and held back from outside (`control.py`). One with a memory limit is
killed above it, as the kernel kills a container.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from gameday.cluster.lab_control import Answer, Configure, Fresh, Look, Order, Verb
from gameday.errors import ControlError
from gameday.processes.children import Child
from gameday_rehearsal.lab.control import Control

log = logging.getLogger(__name__)

COMPONENTS_FILE = "components.json"
# The first restart is immediate; each further crash delays the next one, like kubelet's CrashLoopBackOff.
_BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0)
_STEADY_AFTER_S = 60.0
# kube-apiserver waits a minute for clients that keep their watches open. All processes together must end before the
# supervisor of this process kills it, after 5 s.
_ENDS_WITHIN_S = 2.0
# A server that answers large LISTs grows by up to 400 MiB a second, so between two looks it goes above its limit.
_WEIGHED_EVERY_S = 0.2
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Supervision:
    """A component's facts that its supervisor publishes or uses."""

    version: str
    ready_url: str
    """URL that answers 200 once the component serves."""
    metrics_url: str
    memory_limit_bytes: int | None = None
    held: bool = False
    """True for a component that starts only when asked for."""


@dataclass(frozen=True)
class MemoryKill:
    """A component that was killed for its memory."""

    at: datetime
    rss_bytes: int


@dataclass
class _Supervised:
    child: Child
    facts: Supervision
    held: bool
    paused: bool = False
    resume_at: float | None = None
    restarts: int = 0
    crashes: int = 0
    """Crashes in a row; a steady minute resets them to zero."""
    started: float = field(default_factory=time.monotonic)
    start_again_at: float | None = None
    killed_for_memory: list[MemoryKill] = field(default_factory=list)

    @property
    def pid(self) -> int | None:
        return self.child.process.pid if self.child.process and self.child.alive else None

    def pause(self, for_s: float | None) -> None:
        self.send(signal.SIGSTOP)
        self.paused, self.resume_at = True, None if for_s is None else time.monotonic() + for_s

    def resume(self) -> None:
        self.send(signal.SIGCONT)
        self.paused, self.resume_at = False, None

    def send(self, which: signal.Signals) -> None:
        self.child.send(which)
        if which is signal.SIGKILL and self.child.process:
            self.child.process.wait()


class Supervisor:
    """The processes in their order of start; `components.json` in the folder has their states."""

    def __init__(self, folder: Path, say: Callable[[str], None] = log.warning) -> None:
        """Prepare; `say` gets a line when a process ends."""
        self._file = folder / COMPONENTS_FILE
        self._say = say
        self._supervised: dict[str, _Supervised] = {}

    def spawn(self, child: Child, facts: Supervision) -> Child:
        """Start a component unless it is to be held. Raises OSError."""
        self._supervised[child.name] = _Supervised(child, facts, facts.held)
        if not facts.held:
            child.start()
        self._tell()
        return child

    def forget(self, name: str) -> None:
        """End a component for good; it need not have been started."""
        if one := self._supervised.pop(name, None):
            one.send(signal.SIGCONT)
            one.child.end(_ENDS_WITHIN_S)
            self._tell()

    def is_held(self, name: str) -> bool:
        """Return True if a component is held back until somebody asks for it."""
        return self._supervised[name].held

    def replace(self, child: Child, facts: Supervision) -> bool:
        """End the component of the child's name and start the child in its place, unless it is to be held.

        Returns True if it runs now. Raises OSError.
        """
        before = self._supervised[child.name]
        before.send(signal.SIGCONT)
        before.child.end(_ENDS_WITHIN_S)
        one = _Supervised(
            child, facts, facts.held, restarts=before.restarts, killed_for_memory=before.killed_for_memory
        )
        self._supervised[child.name] = one
        if not one.held:
            one.restarts += 1
            child.start()
        self._tell()
        return not one.held

    def wrote(self, words: str) -> bool:
        """Return True if any of these processes wrote the words into its log, in upper or lower case."""
        return any(one.child.wrote(words) for one in self._supervised.values())

    def supervise(
        self, control: Control | None = None, change: Callable[[Configure | Fresh], None] | None = None
    ) -> NoReturn:
        """Restart components that end, and carry out the orders of `control`, forever.

        Only a signal handler that raises ends this. `change` carries out what concerns the whole control plane, and
        raises ControlError.
        """
        while True:
            with self._pidfds() as pidfds:
                listeners = [control.fileno()] if control else []
                asked, _, _ = select.select([*pidfds, *listeners], [], [], self._wait_s())
            if control and control.fileno() in asked:
                control.answer(partial(self._obey, change))
            self._resume_due()
            self._weigh()
            self._mend()

    def end(self) -> None:
        """End all, the last started first: each may still need to write to those before it."""
        for one in list(self._supervised.values())[::-1]:
            one.send(signal.SIGCONT)
            one.child.end(_ENDS_WITHIN_S)
        if self._supervised:
            self._supervised.clear()
            self._file.unlink(missing_ok=True)

    @contextmanager
    def _pidfds(self) -> Iterator[list[int]]:
        pidfds = [os.pidfd_open(pid) for one in self._supervised.values() if (pid := one.pid)]
        try:
            yield pidfds
        finally:
            for pidfd in pidfds:
                os.close(pidfd)

    def _wait_s(self) -> float | None:
        """Return the seconds until something is due, or None if nothing is."""
        waits = [_WEIGHED_EVERY_S for one in self._supervised.values() if one.facts.memory_limit_bytes and one.pid]
        for one in self._supervised.values():
            if one.resume_at is not None:
                waits.append(max(0.0, one.resume_at - time.monotonic()))
            if not one.held and not one.child.alive:  # a component that ended since the last look is due now
                waits.append(0.0 if one.start_again_at is None else max(0.0, one.start_again_at - time.monotonic()))
        return min(waits, default=None)

    def _resume_due(self) -> None:
        for one in self._supervised.values():
            if one.resume_at is not None and one.resume_at <= time.monotonic():
                one.resume()
                self._say(f"{one.child.name}: its pause is over")
                self._tell()

    def _weigh(self) -> None:
        for one in self._supervised.values():
            limit, pid = one.facts.memory_limit_bytes, one.pid
            if limit is None or pid is None or (rss := rss_bytes(pid)) <= limit:
                continue
            one.send(signal.SIGKILL)
            one.killed_for_memory.append(MemoryKill(datetime.now(UTC), rss))
            self._say(f"{one.child.name} held {rss / 2**20:.0f} MiB, its limit is {limit / 2**20:.0f} MiB: killed")

    def _mend(self) -> None:
        for one in self._supervised.values():
            if one.held or one.child.alive:
                continue
            if one.start_again_at is None:
                self._plan_start(one, str(one.child.error("ended")))
            if one.start_again_at is not None and one.start_again_at <= time.monotonic():
                self._start_again(one)
            self._tell()

    def _plan_start(self, one: _Supervised, why: str) -> None:
        now = time.monotonic()
        one.crashes = 0 if now - one.started > _STEADY_AFTER_S else one.crashes
        pause = _BACKOFF_S[min(one.crashes, len(_BACKOFF_S) - 1)]
        one.crashes += 1
        one.start_again_at = now + pause
        self._say(f"{why}; starting it again{f' in {pause:g} s' if pause else ''}")

    def _start_again(self, one: _Supervised) -> None:
        one.restarts += one.child.process is not None  # a component that was held until now starts for the first time
        one.child.end()
        one.started, one.start_again_at = time.monotonic(), None
        one.paused, one.resume_at = False, None
        try:
            one.child.start()
        except OSError as error:
            self._plan_start(one, f"{one.child.name} cannot be started: {error.filename}: {error.strerror}")

    def _obey(self, change: Callable[[Configure | Fresh], None] | None, request: Order) -> Answer:
        """Carry out an order and return the component's state after it. Raises ControlError."""
        if isinstance(request, Configure | Fresh):
            if change is None:
                raise ControlError(f"only a whole control plane can be asked to {request.verb}")
            self._say(f"{request.verb}, as asked")
            for each in self._supervised.values():  # a server does not start while etcd is paused
                each.resume()
            change(request)
            return Answer()
        one = self._supervised.get(request.component)
        if one is None:
            raise ControlError(f"no component is named {request.component!r}: choose {', '.join(self._supervised)}")
        if isinstance(request, Look):
            return Answer(pid=one.pid, paused=one.paused)
        if request.verb is Verb.START:
            if one.child.alive:
                raise ControlError(f"{request.component} runs already")
        elif not one.child.alive and request.verb is not Verb.HOLD:
            raise ControlError(f"{request.component} does not run just now")
        self._say(f"{request.component}: {request.verb}, as asked")
        self._act(one, request.verb, request.for_s)
        self._tell()
        return Answer(pid=one.pid, paused=one.paused)

    def _act(self, one: _Supervised, verb: Verb, for_s: float | None) -> None:
        if verb is Verb.KILL:  # `_mend` finds it, like any crash
            one.send(signal.SIGKILL)
        elif verb is Verb.PAUSE:
            one.pause(for_s)
        elif verb is Verb.RESUME:
            one.resume()
        else:
            one.resume()
            one.child.end(_ENDS_WITHIN_S)
            one.held = verb is Verb.HOLD
            if not one.held:
                self._start_again(one)

    def _tell(self) -> None:
        document = {name: _published(one) for name, one in self._supervised.items()}
        part = self._file.with_suffix(".part")
        try:
            part.write_text(json.dumps(document, indent=1), encoding="utf-8")
            part.replace(self._file)
        except OSError as error:  # a full disk is no reason to end what still runs
            log.warning("%s is out of date: %s", self._file, error.strerror)


def rss_bytes(pid: int) -> int:
    """Return a process's resident memory, or 0 if it is gone (proc(5): the second field of statm, in pages)."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1]) * _PAGE_BYTES
    except OSError:
        return 0


def _published(one: _Supervised) -> dict[str, Any]:
    return {
        "pid": one.pid,
        "program": one.child.argv[0],
        "version": one.facts.version,
        "restarts": one.restarts,
        "started_at": time.time() - (time.monotonic() - one.started),
        "log": str(one.child.log),
        "ready_url": one.facts.ready_url,
        "metrics_url": one.facts.metrics_url,
        "held": one.held,
        "paused": one.paused,
        "memory_limit_bytes": one.facts.memory_limit_bytes,
        "killed_for_memory": [
            {"at": kill.at.isoformat(), "rss_bytes": kill.rss_bytes} for kill in one.killed_for_memory
        ],
    }
