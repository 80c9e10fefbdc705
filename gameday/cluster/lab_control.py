"""The control socket of a running lab: its requests and its client. A real cluster has none.

One JSON line is answered with one:

    {"verb": "restart", "component": "kube-apiserver-2"}  →  {"pid": 4711}  or  {"error": "no component is named …"}
    {"verb": "pause", "component": "etcd", "for_s": 20}  →  {"pid": 4712, "paused": true}
    {"verb": "configure", "rehearsal": {"environment": {"kube-apiserver": {"GOGC": "50"}}}}  →  {"pid": null, …}
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError

from gameday.documents.fields import DocumentModel
from gameday.errors import ControlError

SOCKET = "control.sock"
_LINE_BYTES = 65_536
# For a restart the lab waits at most 2 s for the component's end.
_ANSWERS_WITHIN_S = 30.0
# A restart of five API servers, one after the other: each ends within 2 s and is ready after 4 s, on a busy machine
# after 30 (measured on two cores).
_READY_WITHIN_S = 300.0


class Verb(StrEnum):
    """A thing that a lab can do with a component."""

    RESTART = "restart"
    """End it (after 2 s by force) and start it again at once."""
    KILL = "kill"
    """SIGKILL; as after any crash, the lab starts it again."""
    PAUSE = "pause"
    """SIGSTOP: it keeps its connections and answers nothing."""
    RESUME = "resume"
    HOLD = "hold"
    """End it, and start it only when asked to."""
    START = "start"


class Request(DocumentModel):
    """A thing to do with one component; answered at once."""

    verb: Verb
    component: str = Field(max_length=63)
    for_s: float | None = Field(default=None, gt=0, le=3600)
    """Length of a pause, after which the lab itself resumes the component; None: it stays paused until it is asked."""


class Look(DocumentModel):
    """A question: is one component running, and is it paused?"""

    verb: Literal["look"]
    component: str = Field(max_length=63)


class Configure(DocumentModel):
    """New settings to run with; answered when every component that this restarts is ready again.

    Every component except etcd restarts, one after the other; etcd only if the settings change it.
    """

    verb: Literal["configure"]
    rehearsal: dict[str, Any]
    """Keys of a plan's `rehearsal`, merged into the settings that the lab was started with (a JSON Merge Patch)."""


class Fresh(DocumentModel):
    """Restart the API servers unchanged, one after the other; answered when the last is ready."""

    verb: Literal["fresh"]


Order = Request | Look | Configure | Fresh


class Answer(DocumentModel):
    """The component's process id (None: it is not running, or there are several), or why nothing was done."""

    pid: int | None = None
    paused: bool = False
    error: str = ""


def ask_lab(control: Path, verb: Verb, component: str, for_s: float | None = None) -> int | None:
    """Ask the lab to do something with a component.

    Args:
        control: The lab's control socket.
        verb: What to do.
        component: The component's name.
        for_s: For a pause: seconds after which the lab itself resumes it; None: it stays paused.

    Returns:
        The component's process id; None if it is no longer running.

    Raises:
        ControlError: The lab refuses, or there is none.
    """
    return _ask(control, Request(verb=verb, component=component[:63], for_s=for_s), _ANSWERS_WITHIN_S).pid


def look_at(control: Path, component: str) -> Answer:
    """Return a component's process id and whether it is paused. Raises ControlError."""
    return _ask(control, Look(verb="look", component=component[:63]), _ANSWERS_WITHIN_S)


def configure_lab(control: Path, rehearsal: dict[str, Any]) -> None:
    """Restart a lab with other settings, except etcd, and wait until it is ready.

    Args:
        control: The lab's control socket.
        rehearsal: Keys of a plan's `rehearsal` that differ from those that the lab was started with; empty: none.

    Raises:
        ControlError: The lab refuses them, a component does not start with them, or there is no lab.
    """
    _ask(control, Configure(verb="configure", rehearsal=rehearsal), _READY_WITHIN_S)


def restart_api_servers(control: Path) -> None:
    """Restart a lab's API servers, one after the other, and wait until they are ready. Raises ControlError."""
    _ask(control, Fresh(verb="fresh"), _READY_WITHIN_S)


def read_line(peer: socket.socket, within_s: float) -> bytes:
    """Read up to a newline; raises OSError if none comes in time."""
    line, deadline = b"", time.monotonic() + within_s
    while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
        peer.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = peer.recv(_LINE_BYTES - len(line))
        if not chunk:
            break
        line += chunk
    return line


@contextmanager
def short_address(control: Path) -> Iterator[str]:
    """Yield a short name for the socket, in any folder: unix(7) allows 107 bytes."""
    directory = os.open(control.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{control.name}"
    finally:
        os.close(directory)


def _ask(control: Path, order: Order, within_s: float) -> Answer:
    try:
        with socket.socket(socket.AF_UNIX) as client, short_address(control) as address:
            client.connect(address)
            client.sendall(order.model_dump_json().encode() + b"\n")
            answer = Answer.model_validate_json(read_line(client, within_s))
    except (OSError, ValidationError) as error:
        why = getattr(error, "strerror", None) or "it gave no answer"
        raise ControlError(f"no lab can be asked in {control.parent}: {why}; `gameday lab up` starts one") from None
    if answer.error:
        raise ControlError(answer.error)
    return answer
