"""The parts that all sources share: their interface, and a thread that polls with back-off."""

from __future__ import annotations

import logging
import re
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable

from gameday.cluster.back_off import pause_s
from gameday.errors import AdapterError
from gameday_health.signal import Signal, SignalKind

log = logging.getLogger(__name__)

OnSignal = Callable[[Signal], bool]
"""Takes a signal to the worker, in order. False: not taken, because the controller stops or is overrun."""

_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}):([0-9a-f]{2})(?:\.[0-9a-f])?", re.IGNORECASE)


class Source(ABC):
    """A source of signals of one kind; `start` and `stop` are for the controller's thread."""

    kind: SignalKind

    @abstractmethod
    def start(self) -> None:
        """Begin to bring signals."""

    @abstractmethod
    def stop(self) -> None:
        """End; a request under way ends by itself."""

    @abstractmethod
    def trouble(self) -> str:
        """Return why signals may be missing now; empty if none are."""


class PollingSource(Source):
    """A source that asks a server again and again."""

    poll_s: float
    """Seconds between two successful requests."""
    longest_pause_s = 60.0
    """The longest pause after failures; each failure doubles the pause."""

    def __init__(self) -> None:
        self._stopping = threading.Event()
        self._asked = threading.Event()
        self._trouble = "not asked yet"

    def start(self) -> None:
        threading.Thread(target=self._run, name=f"poll {self.kind}", daemon=True).start()

    def stop(self) -> None:
        self._stopping.set()
        self._asked.set()

    def ask_now(self) -> None:
        """End the present pause; for any thread."""
        self._asked.set()

    def trouble(self) -> str:
        return self._trouble

    @abstractmethod
    def poll(self) -> None:
        """Ask once, and bring anything new. Raises AdapterError."""

    def _run(self) -> None:
        failures = 0
        while not self._stopping.is_set():
            try:
                self.poll()
            except AdapterError as error:
                if not failures:
                    log.warning("%s signals: %s; trying again", self.kind, error)
                failures += 1
                self._trouble = str(error)
            else:
                failures, self._trouble = 0, ""
            self._asked.wait(pause_s(failures, 1.0, self.longest_pause_s) if failures else self.poll_s)
            self._asked.clear()


def pci_address(text: str | None) -> str | None:
    """Return an address as the kernel log writes it (0000:4e:00), or None; dcgm-exporter writes 00000000:4E:00.0."""
    found = _PCI.fullmatch(text or "")
    if not found:
        return None
    domain, bus, device = found.groups()
    return f"{int(domain or '0', 16):04x}:{bus}:{device}".lower()
