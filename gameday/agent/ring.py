"""A ring all-reduce of float32 over TCP, as in NCCL: reduce-scatter, then all-gather.

Each of n ranks sends 2(n-1)/n of the S bytes to the next one, in 2(n-1) steps. The sums are known beforehand, so that
every result is checked.
"""

from __future__ import annotations

import select
import socket
import time
from contextlib import suppress
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from gameday.errors import LinkError

_PERIOD = 251
"""A prime, so that no two chunks are alike; sums of some thousand ranks stay exact in float32."""
_SEND_BYTES = 1 << 20
Floats = np.ndarray[Any, np.dtype[np.float32]]


class Rounds(BaseModel):
    """An order to all ranks to do this many all-reduces in a row; none means that the measurement is over."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(ge=0, le=1000)
    elements: int = Field(ge=1, le=1 << 30, description="float32 values of each rank; a multiple of the ranks")
    within_s: float = Field(gt=0, le=600, description="cut off after so long")


class Done(BaseModel):
    """The answer of a rank to `Rounds`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(ge=0, description="finished")
    seconds: float = Field(gt=0)
    received_bytes: int = Field(ge=0)
    wrong: int = Field(default=0, ge=0, description="elements of the last result that are not the sum")
    cut_off: str = Field(default="", max_length=300, description="why not all rounds were finished; empty: all were")


class Ring:
    """The place of a rank in the ring."""

    def __init__(self, rank: int, ranks: int, to_next: socket.socket, from_previous: socket.socket) -> None:
        """Use two proven connections."""
        self._rank, self._ranks = rank, ranks
        self._next, self._previous = to_next, from_previous
        for one in (to_next, from_previous):
            one.setblocking(False)
            if one.family == socket.AF_INET:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._received = 0

    def run(self, order: Rounds) -> Done:
        """All-reduce, and never take longer than the order allows."""
        own = (np.arange(order.elements) % _PERIOD).astype(np.float32)
        data, done, cut_off = own + np.float32(self._rank), 0, ""
        self._received, began = 0, time.monotonic()
        try:
            for done in range(1, order.rounds + 1):
                self._all_reduce(data, began + order.within_s)
                if done < order.rounds:
                    data = own + np.float32(self._rank)
        except LinkError as error:
            done, cut_off = done - 1, str(error)[:300]
        seconds = max(time.monotonic() - began, 1e-9)
        wrong = 0 if cut_off else int(np.count_nonzero(data != own * self._ranks + sum(range(self._ranks))))
        return Done(rounds=done, seconds=seconds, received_bytes=self._received, wrong=wrong, cut_off=cut_off)

    def cut_off(self) -> None:
        """Do the all-reduces, and never take longer than the order allows."""
        for one in (self._next, self._previous):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close both connections. Idempotent."""
        self._next.close()
        self._previous.close()

    def _all_reduce(self, data: Floats, deadline: float) -> None:
        """Replace `data` by its sum over all ranks. Raises LinkError."""
        chunks = np.split(data, self._ranks)
        received = np.empty_like(chunks[0])
        for step in range(self._ranks - 1):
            self._exchange(chunks[(self._rank - step) % self._ranks], received, deadline)
            chunks[(self._rank - step - 1) % self._ranks] += received
        for step in range(self._ranks - 1):
            into = chunks[(self._rank - step) % self._ranks]
            self._exchange(chunks[(self._rank - step + 1) % self._ranks], into, deadline)

    def _exchange(self, sent: Floats, into: Floats, deadline: float) -> None:
        """Send one chunk to the next rank and receive one of the same size at the same time. Raises LinkError."""
        out, space = sent.data.cast("B"), into.data.cast("B")
        while out or space:
            readers = [self._previous] if space else []
            writers = [self._next] if out else []
            left = deadline - time.monotonic()
            readable, writable, _ = select.select(readers, writers, [], max(0.0, left))
            if left <= 0 or not (readable or writable):
                raise LinkError("the time was up")
            try:
                if writable:
                    out = out[self._next.send(out[:_SEND_BYTES]) :]
                if readable:
                    count = self._previous.recv_into(space)
                    if not count:
                        raise LinkError("a connection of the ring was closed")
                    self._received += count
                    space = space[count:]
            except BlockingIOError:
                continue
            except OSError as error:
                raise LinkError(f"a connection of the ring broke: {error.strerror or error}") from None
