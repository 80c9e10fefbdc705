"""A small HTTP server for Alertmanager's `webhook_configs`: POST /alerts."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gameday.cluster.quiet_http import QuietHandler, QuietServer

log = logging.getLogger(__name__)

_LARGEST_BODY_BYTES = 1024 * 1024
"""Alertmanager sends all alerts of a group in one request; 1 MiB holds about a thousand."""
_LARGEST_LENGTH_DIGITS = len(str(_LARGEST_BODY_BYTES))


class ReceivedAlert(BaseModel):
    """An alert of a notification. Its labels and annotations are text from outside."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: Annotated[AwareDatetime, Field(alias="startsAt")]
    ends_at: Annotated[AwareDatetime | None, Field(alias="endsAt")] = None
    """A moment of the year 1 while it fires."""
    fingerprint: str = ""
    """Alertmanager's hash of the labels."""


class _Notification(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    version: Literal["4"] = "4"
    alerts: tuple[ReceivedAlert, ...]


@dataclass(frozen=True)
class ReceiverOptions:
    """The address of the receiver, and who may send to it."""

    address: str
    port: int
    """0: any free port."""
    token_file: Path | None = None
    """File with the bearer token that senders must show, read anew for every request. None: anybody may send."""


class AlertReceiver:
    """The server.

    It answers 200 once every alert in the request has been taken, so that Alertmanager sends again what was not.
    """

    def __init__(self, options: ReceiverOptions, take: Callable[[Sequence[ReceivedAlert]], bool]) -> None:
        """Bind the port.

        Args:
            options: The address, and who may send.
            take: Takes the alerts of one notification, in a thread of its own; False: they are to be sent again.

        Raises:
            OSError: The port cannot be bound.
        """
        self._server = _Server((options.address, options.port), _Handler)
        self._server.token_file = options.token_file
        self._server.take = take

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="alert webhook", daemon=True).start()

    def stop(self) -> None:
        threading.Thread(target=self._server.shutdown, daemon=True).start()


class _Refused(Exception):
    """A request that is not taken."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Server(QuietServer):
    token_file: Path | None
    take: Callable[[Sequence[ReceivedAlert]], bool]


class _Handler(QuietHandler):
    server: _Server

    def do_POST(self) -> None:
        try:
            notification = self._notification()
            self.server.keep(self.connection)
            if not self.server.take(notification.alerts):
                raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy: send it again")
            self._answer(HTTPStatus.OK, "taken")
        except _Refused as refusal:
            self._answer(refusal.status, str(refusal))

    def _notification(self) -> _Notification:
        if self.path != "/alerts":
            raise _Refused(HTTPStatus.NOT_FOUND, "send alerts to /alerts")
        if not self._is_allowed():
            raise _Refused(HTTPStatus.UNAUTHORIZED, "show the bearer token")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        # Python refuses to read a number of thousands of digits.
        if len(length) > _LARGEST_LENGTH_DIGITS or int(length) > _LARGEST_BODY_BYTES:
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {_LARGEST_BODY_BYTES} bytes")
        try:
            return _Notification.model_validate_json(self.rfile.read(int(length)))
        except ValidationError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "this is no notification of Alertmanager's") from None
        except OSError:
            raise _Refused(HTTPStatus.REQUEST_TIMEOUT, "the body did not come in time") from None

    def _is_allowed(self) -> bool:
        if self.server.token_file is None:
            return True
        try:
            token = self.server.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            log.warning("the webhook's token file %s cannot be read: every request is refused", self.server.token_file)
            return False
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        return bool(token) and hmac.compare_digest(shown.encode(), token.encode())

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True
