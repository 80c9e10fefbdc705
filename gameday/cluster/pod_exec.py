"""A command in a pod, over the API server's websocket: an argument list, no shell, no terminal, no input.

The official client buffers all output and has no time-out for the handshake. A pod's output is hostile input, so this
module itself reads the frames of the protocol v4.channel.k8s.io (docs/sources.md, Commands in pods).
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from websockets.exceptions import InvalidHandshake, InvalidStatus, WebSocketException
from websockets.sync.client import connect
from websockets.sync.connection import Connection
from websockets.typing import Subprotocol

from gameday.cluster.http import Answer
from gameday.cluster.kubeconfig import CREDENTIALS_HINT, NoCredentialsError
from gameday.cluster.kubernetes import Kubernetes
from gameday.errors import KubernetesError
from gameday.text import printable

_PROTOCOL = Subprotocol("v4.channel.k8s.io")
_STDOUT, _STDERR, _ERROR = 1, 2, 3
OUTPUT_BYTES = 64 << 10
"""The most output that is kept; the rest is read and dropped."""
_FRAME_BYTES = 1 << 20
_MESSAGE_CHARACTERS = 200
_HINT = "grant it with `kubectl apply -n {} -k deploy/probes`"
_HTTP_FORBIDDEN = 403


@dataclass(frozen=True)
class CommandResult:
    """The end of a command in a pod."""

    exit_status: int
    output: str
    """The first OUTPUT_BYTES of output and error output, as they came."""


def run_in_pod(
    kubernetes: Kubernetes, namespace: str, pod: str, container: str | None, argv: Sequence[str], timeout_s: float
) -> CommandResult:
    """Run a command in a container of a running pod, and wait for its end.

    Args:
        kubernetes: The cluster.
        namespace: The pod's namespace.
        pod: The pod.
        container: The container; None: the pod's only one.
        argv: The program and its arguments.
        timeout_s: Seconds for everything. The command itself goes on after them.

    Raises:
        KubernetesError: The API server or the kubelet refuses, or there is no exit status in time.
    """
    act, deadline = f"run {printable(argv[0], 80)} in pod {namespace}/{pod}", time.monotonic() + timeout_s
    try:
        with _connection(kubernetes, f"{namespace}/{pod}", container, argv, timeout_s) as socket:
            return _read(socket, deadline)
    except InvalidStatus as error:
        status, why = error.response.status_code, _message(error.response.body)
        hint = _HINT.format(namespace) if status == _HTTP_FORBIDDEN else ""
        raise KubernetesError(kubernetes.server, f"{act}: {status} {why}", hint, status=status) from None
    except TimeoutError:
        raise KubernetesError(kubernetes.server, f"{act}: it did not end within {timeout_s:g} s") from None
    except ValidationError:
        raise KubernetesError(kubernetes.server, f"{act}: its end could not be read") from None
    except NoCredentialsError as error:
        raise KubernetesError(kubernetes.server, f"{act}: {error}", CREDENTIALS_HINT) from None
    except (WebSocketException, InvalidHandshake, OSError, ValueError) as error:
        why = printable(str(error) or type(error).__name__, 200)
        raise KubernetesError(kubernetes.server, f"{act}: {why}") from None


def _connection(
    kubernetes: Kubernetes, pod: str, container: str | None, argv: Sequence[str], timeout_s: float
) -> Connection:
    kubernetes.counter.add("GET pods/exec", sent=0, received=0)
    namespace, name = pod.split("/")
    query = [("stdout", "true"), ("stderr", "true"), *(("command", word) for word in argv)]
    query += [("container", container)] if container else []
    _, url, headers, *_ = kubernetes.api.param_serialize(
        "GET",
        f"/api/v1/namespaces/{namespace}/pods/{name}/exec",
        query_params=query,
        header_params={},
        auth_settings=["BearerToken"],
    )
    settings = kubernetes.api.configuration
    return connect(
        "ws" + url.removeprefix("http"),
        ssl=_tls(settings) if url.startswith("https:") else None,
        server_hostname=settings.tls_server_name if url.startswith("https:") else None,
        additional_headers={key: value for key, value in headers.items() if key.lower() != "user-agent"},
        user_agent_header=kubernetes.api.user_agent,
        subprotocols=[_PROTOCOL],
        compression=None,
        proxy=settings.proxy,
        open_timeout=timeout_s,
        close_timeout=1,
        max_size=_FRAME_BYTES,
    )


def _tls(settings: Any) -> ssl.SSLContext:
    tls = ssl.create_default_context(cafile=settings.ssl_ca_cert)
    if settings.cert_file:
        tls.load_cert_chain(settings.cert_file, settings.key_file)
    if not settings.verify_ssl:
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    return tls


def _read(socket: Connection, deadline: float) -> CommandResult:
    """Read frames, each with a channel's number and bytes, until the one with the exit status."""
    output = b""
    while True:
        frame = socket.recv(timeout=max(0.0, deadline - time.monotonic()))
        content = frame.encode() if isinstance(frame, str) else frame
        channel, content = content[:1], content[1:]
        if channel in (bytes([_STDOUT]), bytes([_STDERR])):
            output += content[: OUTPUT_BYTES - len(output)]
        elif channel == bytes([_ERROR]) and content:
            return CommandResult(_exit_status(content), output.decode("utf-8", "replace"))
        if time.monotonic() > deadline:
            raise TimeoutError


class _Cause(Answer):
    reason: str = ""
    message: str = ""


class _Details(Answer):
    causes: tuple[_Cause, ...] = ()


class _Status(Answer):
    """A Status object of the API: the keys that say how a command ended."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details = _Details()


def _exit_status(content: bytes) -> int:
    """Return the exit status of a Status object; raises ValueError if the command did not run."""
    status = _Status.model_validate_json(content)
    if status.status == "Success":
        return 0
    codes = [cause.message for cause in status.details.causes if cause.reason == "ExitCode"]
    if status.reason == "NonZeroExitCode" and codes:
        return int(codes[0])
    raise ValueError(f"the command did not run: {_message(content)}")


def _message(body: bytes | bytearray) -> str:
    """Return a Status object's message, or the rest of the answer."""
    try:
        message = _Status.model_validate_json(bytes(body)).message
    except ValueError:
        message = body[:_MESSAGE_CHARACTERS].decode("utf-8", "replace")
    return printable(" ".join(message.split()), _MESSAGE_CHARACTERS)
