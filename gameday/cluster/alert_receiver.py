"""A small HTTP server for Alertmanager's `webhook_configs`: POST /alerts."""

from __future__ import annotations

import hmac
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError

from gameday.cluster.quiet_http import QuietHandler, QuietServer

log = logging.getLogger(__name__)

LARGEST_BODY_BYTES = 16 * 1024 * 1024
"""Alertmanager sends all alerts of a group in one request: 20,000 of 800 bytes, which take 80 MB here."""
_LARGEST_LENGTH_DIGITS = len(str(LARGEST_BODY_BYTES))
_LARGE_BODY_BYTES = 1024 * 1024
"""Larger bodies are read one at a time."""
_TURN_WITHIN_S = 10.0
_WARN_EVERY_S = 60.0
"""The same trouble is logged once a minute, so that a sender cannot fill the log."""


class ReceivedAlert(BaseModel):
    """An alert of a notification. Its labels and annotations are text from outside."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = Field(default_factory=dict)
    starts_at: Annotated[AwareDatetime, Field(alias="startsAt")]
    ends_at: Annotated[AwareDatetime | None, Field(alias="endsAt")] = None
    """The end of the alert; in the year 1 while it fires."""
    fingerprint: str = ""
    """Alertmanager's hash of the labels."""


class _Notification(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")

    alerts: tuple[Any, ...]
    truncated: Annotated[int, Field(alias="truncatedAlerts")] = 0
    """Alerts of the group that Alertmanager left out because of its receiver's max_alerts."""


class Trouble(StrEnum):
    """The reasons why a webhook may lack alerts."""

    TRUNCATED = "truncated"
    """Alertmanager left some out."""
    TOO_LARGE = "too large"
    NO_ALERT = "no alert"
    """An entry of the notification is not an alert."""
    NOT_ALLOWED = "not allowed"
    """The token is missing or wrong, or ours cannot be read."""
    NOT_TAKEN = "not taken"
    """It will be sent again."""
    NO_NOTIFICATION = "no notification"


@dataclass(frozen=True)
class ReceiverOptions:
    """The address of the receiver, and who may send to it."""

    address: str
    port: int
    """0: any free port."""
    token_file: Path | None = None
    """File with the bearer token that senders must show, read again for every request. None: anybody may send."""


class AlertReceiver:
    """The server.

    It answers 200 once every alert in the request has been taken, and 503 if it should be sent again: Alertmanager
    repeats a request after each 5xx, and never after a 4xx (docs/sources.md, Alertmanager's webhook).
    """

    def __init__(
        self,
        options: ReceiverOptions,
        take: Callable[[Sequence[ReceivedAlert]], bool],
        on_trouble: Callable[[Trouble], object] = lambda _: None,
    ) -> None:
        """Bind the port.

        Args:
            options: The address, and who may send.
            take: Takes the alerts of one notification, in its own thread; returns False if they have to be sent again.
            on_trouble: Called, by that thread, if alerts may be missing.

        Raises:
            OSError: The port cannot be bound.
        """
        self._server = _Server((options.address, options.port), _Handler)
        self._server.token_file = options.token_file
        self._server.take = take
        self._server.troubles = _Troubles(on_trouble)
        self._server.turn = threading.Lock()

    @property
    def port(self) -> int:
        """The bound port."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        threading.Thread(target=self._server.serve_forever, name="alert webhook", daemon=True).start()

    def stop(self) -> None:
        threading.Thread(target=self._server.shutdown, daemon=True).start()


class _Refused(Exception):
    """A request that is refused."""

    def __init__(self, status: HTTPStatus, why: str, trouble: Trouble = Trouble.NO_NOTIFICATION) -> None:
        super().__init__(why)
        self.status = status
        self.trouble = trouble


class _Troubles:
    """The troubles of a receiver, logged once a minute and passed on to a counter."""

    def __init__(self, on_trouble: Callable[[Trouble], object]) -> None:
        self._on_trouble = on_trouble
        self._told: dict[Trouble, float] = {}

    def tell(self, trouble: Trouble, text: str) -> None:
        self._on_trouble(trouble)
        now = time.monotonic()
        if now >= self._told.get(trouble, now):
            self._told[trouble] = now + _WARN_EVERY_S
            log.warning("alert webhook: %s", text)


class _Server(QuietServer):
    token_file: Path | None
    take: Callable[[Sequence[ReceivedAlert]], bool]
    troubles: _Troubles
    turn: threading.Lock


class _Handler(QuietHandler):
    server: _Server

    def do_POST(self) -> None:
        try:
            length = self._length()
            with self._turn(length):
                notification = self._notification(length)
                self.server.keep(self.connection)
                if not self.server.take(self._alerts_of(notification)):
                    raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, "busy: send it again", Trouble.NOT_TAKEN)
            self._answer(HTTPStatus.OK, "taken")
        except _Refused as refusal:
            self.server.troubles.tell(refusal.trouble, f"a request is answered with {refusal.status}: {refusal}")
            self._answer(refusal.status, str(refusal))

    def _length(self) -> int:
        if self.path != "/alerts":
            raise _Refused(HTTPStatus.NOT_FOUND, "send alerts to /alerts")
        self._check_token()
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal():
            raise _Refused(HTTPStatus.LENGTH_REQUIRED, "Content-Length is missing")
        # Python refuses to parse a number of thousands of digits.
        if len(length) > _LARGEST_LENGTH_DIGITS or int(length) > LARGEST_BODY_BYTES:
            why = f"more than {LARGEST_BODY_BYTES} bytes, and it would be as large again: set the receiver's max_alerts"
            raise _Refused(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why, Trouble.TOO_LARGE)
        return int(length)

    def _turn(self, length: int) -> AbstractContextManager[None]:
        return self._large_turn() if length > _LARGE_BODY_BYTES else nullcontext()

    @contextmanager
    def _large_turn(self) -> Iterator[None]:
        if not self.server.turn.acquire(timeout=_TURN_WITHIN_S):
            raise _Refused(
                HTTPStatus.SERVICE_UNAVAILABLE, "another large one is read: send it again", Trouble.NOT_TAKEN
            )
        try:
            yield
        finally:
            self.server.turn.release()

    def _notification(self, length: int) -> _Notification:
        try:
            return _Notification.model_validate_json(self.rfile.read(length))
        except ValidationError:
            raise _Refused(HTTPStatus.BAD_REQUEST, "this is no notification of Alertmanager's") from None
        except OSError:
            why = "the body did not come in time: send it again"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, why, Trouble.NOT_TAKEN) from None

    def _alerts_of(self, notification: _Notification) -> list[ReceivedAlert]:
        """Return the alerts; an unreadable one must not cost the others."""
        if notification.truncated > 0:
            text = (
                f"{notification.truncated} alerts were left out of a notification: set the receiver's max_alerts to 0"
            )
            self.server.troubles.tell(Trouble.TRUNCATED, text)
        alerts: list[ReceivedAlert] = []
        for entry in notification.alerts:
            try:
                alerts.append(ReceivedAlert.model_validate(entry))
            except ValidationError:
                self.server.troubles.tell(Trouble.NO_ALERT, "an entry of a notification is no alert, and is left out")
        return alerts

    def _check_token(self) -> None:
        if self.server.token_file is None:
            return
        try:
            token = self.server.token_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            why = "the token file here cannot be read: send it again"
            raise _Refused(HTTPStatus.SERVICE_UNAVAILABLE, why, Trouble.NOT_ALLOWED) from None
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if not token or not hmac.compare_digest(shown.encode(), token.encode()):
            raise _Refused(HTTPStatus.UNAUTHORIZED, "show the bearer token", Trouble.NOT_ALLOWED)

    def _answer(self, status: HTTPStatus, text: str) -> None:
        body = text.encode() + b"\n"
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.close_connection = True
