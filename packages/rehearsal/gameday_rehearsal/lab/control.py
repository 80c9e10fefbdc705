"""The lab's end of its control socket (`gameday/cluster/lab_control.py`), in the control plane's folder.

Only the folder's owner can connect: the folder has mode 0700 and the socket 0600.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gameday.cluster.lab_control import SOCKET, Answer, Order, Verb, read_line, short_address
from gameday.errors import ControlError
from gameday.text import shown

# A client that sends nothing must not hold up the lab.
_ASKS_WITHIN_S = 1.0
_ORDER: TypeAdapter[Order] = TypeAdapter(Order)


class Control:
    """The lab's end of the channel. Wait for it with `select`; then `answer` serves one client."""

    def __init__(self, folder: Path) -> None:
        """Listen in the folder. Raises OSError."""
        self._path = folder / SOCKET
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            with short_address(self._path) as address:
                self._listener.bind(address)
            self._path.chmod(0o600)
            self._listener.listen()
        except BaseException:
            self.close()
            raise

    def fileno(self) -> int:
        return self._listener.fileno()

    def answer(self, obey: Callable[[Order], Answer]) -> None:
        """Read a client's order and answer with the result of `obey`, or with its refusal (ControlError)."""
        client, _ = self._listener.accept()
        with client, suppress(OSError):  # a client that went away needs no answer
            client.sendall(_answer(read_line(client, _ASKS_WITHIN_S), obey).model_dump_json().encode() + b"\n")

    def close(self) -> None:
        self._listener.close()
        self._path.unlink(missing_ok=True)


def _answer(line: bytes, obey: Callable[[Order], Answer]) -> Answer:
    try:
        return obey(_ORDER.validate_json(line))
    except ValidationError:
        verbs = ", ".join(Verb)
        return Answer(
            error=f"{shown(line.decode(errors='replace'))} is not a request: verb ({verbs}, look) and component; or "
            "configure and rehearsal, or fresh"
        )
    except ControlError as error:
        return Answer(error=str(error))
