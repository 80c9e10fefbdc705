"""The connections of an all-reduce over several nodes: both ends prove that they know the run's secret.

Each side sends a random number and answers the other's with an HMAC, so the secret itself never leaves a pod. After
that a channel carries JSON messages, one a line.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import socket
import time
from contextlib import suppress
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from gameday.errors import HostError

_NONCE_BYTES = 16
_PROOF_BYTES = hashlib.sha256().digest_size
_MAX_MESSAGE_BYTES = 65_536
_PROOF_TIMEOUT_S = 10.0

M = TypeVar("M", bound=BaseModel)


class StrangerError(HostError):
    """The other end of a connection does not know the run's secret, or stays silent."""


class PeerLeftError(HostError):
    """A peer has closed its channel, or does not answer in time."""


def prove(made: socket.socket, secret: str, *, accepts: bool) -> None:
    """Prove to the other end of a new connection that we know the secret, and make it prove the same.

    Args:
        made: The connection.
        secret: The run's secret.
        accepts: True at the end that accepted the connection.

    Raises:
        StrangerError: The other end proves nothing within ten seconds.
    """
    own, role, other_role = secrets.token_bytes(_NONCE_BYTES), b"accepts", b"connects"
    if not accepts:
        role, other_role = other_role, role
    made.settimeout(_PROOF_TIMEOUT_S)
    try:
        made.sendall(own)
        other = _exactly(made, _NONCE_BYTES)
        made.sendall(_proof(secret, role, own, other))
        proven = hmac.compare_digest(_exactly(made, _PROOF_BYTES), _proof(secret, other_role, other, own))
    except OSError as error:
        raise StrangerError(f"a connection did not prove that it belongs to this run: {error}") from None
    if not proven:
        raise StrangerError("a connection does not know this run's secret")


def _proof(secret: str, role: bytes, own: bytes, other: bytes) -> bytes:
    return hmac.digest(secret.encode(), role + own + other, "sha256")


def _exactly(made: socket.socket, size: int) -> bytes:
    """Return exactly this many bytes. Raises OSError."""
    received = b""
    while len(received) < size:
        piece = made.recv(size - len(received))
        if not piece:
            raise ConnectionError("it was closed")
        received += piece
    return received


class Channel:
    """A proven connection to the agent on another node, for messages."""

    def __init__(self, made: socket.socket, node: str) -> None:
        """Use a proven connection; `node` is the node of its other end, for error messages."""
        self.node = node
        self._socket = made
        self._began = time.monotonic()
        self._received = b""

    def send(self, message: BaseModel) -> None:
        """Send a message. Raises PeerLeftError."""
        try:
            self._socket.sendall(message.model_dump_json().encode() + b"\n")
        except OSError:
            raise self._left() from None

    def receive(self, model: type[M], within_s: float) -> M:
        """Return the next message.

        Raises:
            PeerLeftError: The other end is gone, or silent for `within_s`.
            HostError: It sends something else.
        """
        deadline = time.monotonic() + within_s
        while b"\n" not in self._received:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            try:
                piece = self._socket.recv(_MAX_MESSAGE_BYTES)
            except TimeoutError:
                raise PeerLeftError(f"peer {self.node} has not answered for {within_s:.0f} s") from None
            except OSError:
                piece = b""
            if not piece:
                raise self._left()
            self._received += piece
            if len(self._received) > _MAX_MESSAGE_BYTES:
                raise HostError(f"peer {self.node} sent a message of more than {_MAX_MESSAGE_BYTES} bytes")
        line, _, self._received = self._received.partition(b"\n")
        try:
            return model.model_validate_json(line)
        except ValidationError:
            raise HostError(f"peer {self.node} sent something else than a {model.__name__}") from None

    def cut_off(self) -> None:
        """End every wait for a message in another thread. Idempotent."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._socket.close()

    def _left(self) -> PeerLeftError:
        return PeerLeftError(f"peer {self.node} left the all-reduce after {time.monotonic() - self._began:.0f} s")
