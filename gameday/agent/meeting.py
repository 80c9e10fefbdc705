"""The meeting of an all-reduce's ranks at rank 0, over the pods' own network.

It tells a dead peer from a fault of the measured network: the fault gives a figure, a dead peer makes it unknown.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field

from gameday.agent.channel import Channel, StrangerError, prove
from gameday.agent.context import Context, Ending
from gameday.agent.task import AllReduceTask, RendezvousNote
from gameday.errors import HostError

if TYPE_CHECKING:
    from gameday.agent.ring import Ring

JOIN_TIMEOUT_S = 75.0
"""Peers' pods are created when rank 0 is ready; each may have to pull the image (gameday/run/agents.py: 60 s)."""
CONNECT_TIMEOUT_S = 10.0
"""Four tries of TCP's, at 0, 1, 3 and 7 s (Linux' initial timeout of one second, doubled each time)."""
ANSWER_MARGIN_S = 10.0

M = TypeVar("M", bound=BaseModel)


class Message(BaseModel):
    """Base of the messages between ranks; frozen, and takes no unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Place(Message):
    """The address at which a rank listens on the measured interface."""

    address: str = Field(max_length=45)
    port: int = Field(ge=1, le=65_535)


class Hello(Message):
    """A peer's rank, and the address at which its predecessor in a ring reaches it through the interface."""

    rank: int = Field(ge=1, le=1024)
    place: Place | None = None


def gather(task: AllReduceTask, context: Context, open_sockets: ExitStack) -> list[tuple[Channel, Hello]]:
    """Print where rank 0 is, and wait for the other ranks there.

    Args:
        task: Rank 0's order.
        context: Becomes ready as soon as the others may come.
        open_sockets: Closes the channels, and ends every wait for them when the agent has to end.

    Returns:
        The peers in the order of their ranks.

    Raises:
        HostError: A peer does not come in time.
    """
    meeting = socket.create_server(("", 0), backlog=2 * len(task.nodes))
    open_sockets.callback(meeting.close)
    context.print_note(RendezvousNote(address=context.host.own_address(), port=meeting.getsockname()[1]))
    context.become_ready()
    peers: dict[int, tuple[Channel, Hello]] = {}
    deadline = time.monotonic() + JOIN_TIMEOUT_S
    meeting.settimeout(0.2)
    while len(peers) < len(task.nodes) - 1:
        missing = [node for rank, node in enumerate(task.nodes) if rank and rank not in peers]
        if context.ending.event.is_set():
            raise HostError(f"ended while waiting for {', '.join(missing)}")
        if time.monotonic() > deadline:
            raise HostError(f"peer {', '.join(missing)} did not come within {JOIN_TIMEOUT_S:.0f} s")
        try:
            made, _ = meeting.accept()
            prove(made, task.secret, accepts=True)
            hello = Channel(made, "that connects").receive(Hello, CONNECT_TIMEOUT_S)
        except TimeoutError:
            continue
        except StrangerError:
            made.close()
            continue
        if hello.rank in peers or hello.rank >= len(task.nodes):
            raise HostError(f"two peers, or one too many, call themselves rank {hello.rank}")
        channel = Channel(made, task.nodes[hello.rank])
        open_sockets.callback(channel.close)
        peers[hello.rank] = (channel, hello)
    cut_off_at_end(context.ending, *(channel for channel, _ in peers.values()))
    return [peers[rank] for rank in sorted(peers)]


def join(task: AllReduceTask, context: Context, open_sockets: ExitStack, place: Place | None = None) -> Channel:
    """Join rank 0, and become ready. Raises HostError if it cannot be reached."""
    try:
        made = socket.create_connection((task.lead_address, task.lead_port), CONNECT_TIMEOUT_S)
    except OSError as error:
        raise HostError(f"cannot reach {task.nodes[0]} at {task.lead_address}: {error}") from None
    prove(made, task.secret, accepts=False)
    channel = Channel(made, task.nodes[0])
    open_sockets.callback(channel.close)
    cut_off_at_end(context.ending, channel)
    channel.send(Hello(rank=task.rank, place=place))
    context.become_ready()
    return channel


def answers(channels: Sequence[Channel], model: type[M], within_s: float) -> list[M]:
    """Return every peer's answer. Raises PeerLeftError."""
    return [channel.receive(model, within_s) for channel in channels]


def cut_off_at_end(ending: Ending, *open_ends: Channel | Ring) -> None:
    """Cut connections off when the agent has to end, so that no wait outlasts the pod's grace period."""

    def wait() -> None:
        ending.event.wait()
        for one in open_ends:
            one.cut_off()

    threading.Thread(target=wait, daemon=True).start()
