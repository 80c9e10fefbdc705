"""The control channel of a running lab: a socket in its folder that takes one JSON line and answers with one.

    {"verb": "restart", "component": "kube-apiserver-2"}  →  {"pid": 4711}  or  {"error": "no component is named …"}

Only the folder's owner may connect: the folder is mode 0700 and the socket 0600.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from pathlib import Path

from pydantic import Field, ValidationError

from gameday.documents.fields import DocumentModel
from gameday.errors import ControlError
from gameday.text import shown

SOCKET = "control.sock"
_LINE_BYTES = 4096
# A lab asked for a restart waits 2 s at most for the component's end; a client that asks nothing must not hold it up.
_ANSWERS_WITHIN_S = 30.0
_ASKS_WITHIN_S = 1.0


class Verb(StrEnum):
    """A thing that a lab can be asked to do with a component."""

    RESTART = "restart"
    """End it (after 2 s by force) and start it again at once."""
    KILL = "kill"
    """SIGKILL; like any crash, the lab starts it again."""
    PAUSE = "pause"
    """SIGSTOP: it keeps its connections and answers nothing."""
    RESUME = "resume"
    HOLD = "hold"
    """End it and leave it so until it is to start."""
    START = "start"


class Request(DocumentModel):
    verb: Verb
    component: str = Field(max_length=63)


class Answer(DocumentModel):
    """The component's process id (None: it does not run), or why nothing was done."""

    pid: int | None = None
    error: str = ""


class Control:
    """The lab's end of the channel. `select` waits for it; then `answer` answers one client."""

    def __init__(self, folder: Path) -> None:
        """Listen in the folder. Raises OSError."""
        self._path = folder / SOCKET
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            with _address(folder) as address:
                self._listener.bind(address)
            self._path.chmod(0o600)
            self._listener.listen()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self, obey: Callable[[Request], int | None]) -> None:
        """Read a client's request and answer it with what `obey` returns or refuses by ControlError."""
        client, _ = self._listener.accept()
        with client, suppress(OSError):  # a client that went away needs no answer
            client.sendall(_answer(_line(client, _ASKS_WITHIN_S), obey).model_dump_json().encode() + b"\n")

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)


def ask_lab(folder: Path, verb: Verb, component: str) -> int | None:
    """Ask the lab in a control plane's folder, and return the component's process id, None where it runs no more.

    Raises ControlError.
    """
    request = Request(verb=verb, component=component[:63])
    try:
        with socket.socket(socket.AF_UNIX) as client, _address(folder) as address:
            client.connect(address)
            client.sendall(request.model_dump_json().encode() + b"\n")
            answer = Answer.model_validate_json(_line(client, _ANSWERS_WITHIN_S))
    except (OSError, ValidationError) as error:
        why = getattr(error, "strerror", None) or "it gave no answer"
        raise ControlError(f"no lab can be asked in {folder}: {why}; `gameday lab up` starts one") from None
    if answer.error:
        raise ControlError(answer.error)
    return answer.pid


def _answer(line: bytes, obey: Callable[[Request], int | None]) -> Answer:
    try:
        return Answer(pid=obey(Request.model_validate_json(line)))
    except ValidationError:
        verbs = ", ".join(Verb)
        return Answer(error=f"{shown(line.decode(errors='replace'))} is no request: verb ({verbs}) and component")
    except ControlError as error:
        return Answer(error=str(error))


def _line(peer: socket.socket, within_s: float) -> bytes:
    """Read up to a newline; raises OSError where none comes."""
    line, deadline = b"", time.monotonic() + within_s
    while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
        peer.settimeout(max(0.001, deadline - time.monotonic()))
        chunk = peer.recv(_LINE_BYTES - len(line))
        if not chunk:
            break
        line += chunk
    return line


@contextmanager
def _address(folder: Path) -> Iterator[str]:
    """The socket's name, short whatever the folder's is: unix(7) leaves it 107 bytes."""
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{directory}/{SOCKET}"
    finally:
        os.close(directory)
