"""The kubelet's pod-resources API: the devices of each container of a node, no matter how they came into it.

It is gRPC on a Unix socket of the host, which a pod reaches through process 1 (docs/sources.md, Device plugin). One
call without arguments needs no gRPC library: it is an HTTP/2 POST of an empty message, with a prefix of five bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx

from gameday.errors import HostError

SOCKET = "var/lib/kubelet/pod-resources/kubelet.sock"
"""The socket's path below the host's root, if the kubelet's --root-dir is its default."""
_LIST = "http://localhost/v1.PodResourcesLister/List"
_HEADERS = {"content-type": "application/grpc", "te": "trailers"}
_NO_COMPRESSION_NO_BYTES = b"\0\0\0\0\0"
_PREFIX_BYTES = 5
_TIMEOUT_S = 5.0
"""The kubelet answers from memory; if it takes longer, it hangs."""
_PODS, _CONTAINERS, _DEVICES = 1, 3, 2
_NAME, _NAMESPACE, _RESOURCE, _DEVICE_ID = 1, 2, 1, 2
"""Field numbers of k8s.io/kubelet/pkg/apis/podresources/v1/api.proto."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
"""Wire types of protobuf."""
_OF_NVIDIA = "nvidia.com/"


def gpu_ids(socket: Path, namespace: str, pod: str) -> tuple[str, ...]:
    """Return the device plugin's ids of the GPUs of a pod's containers; for whole GPUs these are UUIDs.

    Raises:
        HostError: The kubelet cannot be asked, or knows no device of the pod.
    """
    try:
        found = list(_gpus_of(_asked(socket), namespace, pod))
    except httpx.HTTPError as error:
        raise HostError(f"{socket} does not answer: {error or type(error).__name__}") from None
    except ValueError as error:
        raise HostError(f"{socket} sent something that is not a list of pods: {error}") from None
    if not found:
        raise HostError(f"the kubelet lists no GPU of pod {namespace}/{pod}")
    return tuple(dict.fromkeys(found))


def _asked(socket: Path) -> bytes:
    """Return the answer's message. Raises httpx.HTTPError, ValueError and HostError."""
    transport = httpx.HTTPTransport(uds=str(socket), http1=False, http2=True)
    with httpx.Client(transport=transport, timeout=_TIMEOUT_S, trust_env=False) as client:
        answer = client.post(_LIST, content=_NO_COMPRESSION_NO_BYTES, headers=_HEADERS)
    status = answer.headers.get("grpc-status", "0")
    if answer.is_error or status != "0":
        why = answer.headers.get("grpc-message", "") or f"gRPC status {status}"
        raise HostError(f"{socket} refuses: HTTP {answer.status_code}, {why[:200]}")
    prefix, message = answer.content[:_PREFIX_BYTES], answer.content[_PREFIX_BYTES:]
    if len(prefix) < _PREFIX_BYTES or prefix[0] or int.from_bytes(prefix[1:]) != len(message):
        raise ValueError(f"a broken frame of {len(answer.content)} bytes")
    return message


def _gpus_of(listed: bytes, namespace: str, pod: str) -> Iterator[str]:
    """Yield the ids of a pod's devices among NVIDIA's resources. Raises ValueError."""
    for item in _repeated(listed, _PODS):
        if (_text(item, _NAMESPACE), _text(item, _NAME)) != (namespace, pod):
            continue
        for container in _repeated(item, _CONTAINERS):
            for devices in _repeated(container, _DEVICES):
                if _text(devices, _RESOURCE).startswith(_OF_NVIDIA):
                    # A share of a GPU has its id, `::`, and the share's number (k8s-device-plugin, AnnotatedID).
                    yield from (one.decode().partition("::")[0] for one in _repeated(devices, _DEVICE_ID))


def _text(message: bytes, number: int) -> str:
    return next(_repeated(message, number), b"").decode()


def _repeated(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the contents of each field of this number, which must hold bytes. Raises ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        kind = tag & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
            continue
        if kind == _BYTES:
            length, at = _varint(message, at)
        elif kind in (_FIXED32, _FIXED64):
            length = 4 if kind == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {kind}")
        if at + length > len(message):
            raise ValueError("a field that ends behind its message")
        if kind == _BYTES and tag >> 3 == number:
            yield message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a number and the position after it. Raises ValueError if it is cut off, or longer than 64 bits."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("a number that is cut off")
        byte, at = message[at], at + 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")
