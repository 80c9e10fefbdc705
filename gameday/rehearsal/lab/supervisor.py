"""Restart crashed components, as kubelet does with a control plane's static pods, and publish which of them run."""

from __future__ import annotations

import json
import logging
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from gameday.rehearsal.children import Child

log = logging.getLogger(__name__)

COMPONENTS_FILE = "components.json"
# The first restart is immediate; each further crash makes it later, like kubelet's CrashLoopBackOff.
_BACKOFF_S = (0.0, 1.0, 2.0, 5.0, 10.0)
_STEADY_AFTER_S = 60.0
# kube-apiserver waits a minute for clients that keep their watches open. Together the processes have to end before
# the supervisor of this process kills it, which is after 5 s.
_ENDS_WITHIN_S = 2.0


@dataclass
class _Supervised:
    child: Child
    ready_url: str
    version: str
    restarts: int = 0
    crashes: int = 0
    """Crashes in a row; a steady minute sets them back to zero."""
    started: float = field(default_factory=time.monotonic)
    start_again_at: float | None = None


class Supervisor:
    """The processes in the order they were started in; `components.json` in the folder says how they are."""

    def __init__(self, folder: Path, say: Callable[[str], None] = log.warning) -> None:
        """`say` gets one line when a process ended."""
        self._file = folder / COMPONENTS_FILE
        self._say = say
        self._supervised: list[_Supervised] = []

    def spawn(self, child: Child, ready_url: str, version: str) -> Child:
        """`ready_url` answers 200 when it serves. Raises OSError."""
        self._supervised.append(_Supervised(child, ready_url, version))
        child.start()
        self._tell()
        return child

    def wrote(self, words: str) -> bool:
        """Return whether any of these processes wrote the words into its log, in whatever case."""
        return any(one.child.wrote(words) for one in self._supervised)

    def supervise(self) -> NoReturn:
        """Start again whatever ends, for ever: a signal's handler has to raise."""
        while True:
            pidfds, wait_s = [], None
            for one in self._supervised:
                if one.child.alive:
                    pidfds.append(_pidfd(one.child))
                else:  # the soonest decides; one that ended since the last look is due now
                    due = 0.0 if one.start_again_at is None else max(0.0, one.start_again_at - time.monotonic())
                    wait_s = due if wait_s is None else min(wait_s, due)
            try:
                select.select(pidfds, [], [], wait_s)
            finally:
                for pidfd in pidfds:
                    os.close(pidfd)
            self._mend()

    def end(self) -> None:
        """The last started first: each may still write what it has to to those before it."""
        for one in self._supervised[::-1]:
            one.child.end(_ENDS_WITHIN_S)
        if self._supervised:
            self._supervised.clear()
            self._file.unlink(missing_ok=True)

    def _mend(self) -> None:
        for one in self._supervised:
            if one.child.alive:
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
        one.child.end()
        one.restarts, one.started, one.start_again_at = one.restarts + 1, time.monotonic(), None
        try:
            one.child.start()
        except OSError as error:
            self._plan_start(one, f"{one.child.name} cannot be started: {error.filename}: {error.strerror}")

    def _tell(self) -> None:
        document = {
            one.child.name: {
                "pid": one.child.process.pid if one.child.process and one.child.alive else None,
                "program": one.child.argv[0],
                "version": one.version,
                "restarts": one.restarts,
                "started_at": time.time() - (time.monotonic() - one.started),
                "log": str(one.child.log),
                "ready_url": one.ready_url,
            }
            for one in self._supervised
        }
        part = self._file.with_suffix(".part")
        try:
            part.write_text(json.dumps(document, indent=1), encoding="utf-8")
            part.replace(self._file)
        except OSError as error:  # a full disk is no reason to end what still runs
            log.warning("%s is out of date: %s", self._file, error.strerror)


def _pidfd(child: Child) -> int:
    assert child.process is not None
    return os.pidfd_open(child.process.pid)
