"""A reader of Kubernetes' protobuf bodies.

Typed Go clients (kubectl's reviews and evictions, controller-runtime) send them even if the server does not say that it
accepts them. Answers are always JSON, which those clients accept. protobuf.json has the field numbers of release 1.37,
from the tags in k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Any

import orjson

from kubesim.apiserver.errors import bad_request

Json = dict[str, Any]
MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"


@cache
def _table() -> dict[str, dict[str, list[str]]]:
    found: dict[str, dict[str, list[str]]] = orjson.loads((files(__package__) / "protobuf.json").read_bytes())
    return found


def body(raw: bytes) -> Json:
    """Return the object in a protobuf request body as JSON. Raises StatusError 400."""
    if not raw.startswith(_MAGIC):
        raise bad_request("the body is no Kubernetes protobuf: it does not begin with k8s\\x00")
    try:
        return _unwrap(raw[len(_MAGIC) :])
    except (ValueError, IndexError, struct.error, UnicodeDecodeError, OverflowError) as error:
        raise bad_request(f"the protobuf body cannot be read: {error}") from error


def _unwrap(raw: bytes) -> Json:
    """Return the object in a runtime.Unknown, which has the type in field 1 and the object in field 2."""
    kind, api_version, content = "", "", b""
    for number, value in _fields(raw):
        if number == 1:
            for inner, text in _fields(value):
                if inner == 1:
                    api_version = text.decode()
                elif inner == 2:
                    kind = text.decode()
        elif number == 2:
            content = value
    group = api_version.rpartition("/")[0].partition(".")[0] or "core"
    message = "meta.v1.DeleteOptions" if kind == "DeleteOptions" else f"{group}.v1.{kind}"
    if message not in _table():
        raise bad_request(f"no protobuf form is known for {api_version} {kind}; send it as application/json")
    return {"kind": kind, "apiVersion": api_version, **_message(message, content)}


def _fields(raw: Any) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a message: number, and int or bytes. Raises ValueError if it is cut short."""
    position = 0
    while position < len(raw):
        tag, position = _varint(raw, position)
        wire = tag & 7
        if wire == 0:
            value, position = _varint(raw, position)
            yield tag >> 3, value
            continue
        if wire == 2:
            size, position = _varint(raw, position)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"wire type {wire}")
        if position + size > len(raw):
            raise ValueError("the message is cut short")
        yield tag >> 3, raw[position : position + size]
        position += size


def _varint(raw: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "s": lambda raw: raw.decode(),
    "b": bool,
    "i": _signed,
    "y": lambda raw: base64.b64encode(raw).decode(),
    "d": lambda raw: struct.unpack("<d", raw)[0],
    "extra": lambda raw: [item.decode() for number, item in _fields(raw) if number == 1],
}


def _message(name: str, raw: bytes) -> Json:
    """Return a message as JSON, without empty strings and false, as Go's omitempty does for most fields."""
    result: Json = {}
    fields = _table()[name]
    for number, value in _fields(raw):
        field = fields.get(str(number))
        if field is None:
            continue
        json_name, code = field
        if not json_name:  # an embedded struct: its fields are ours
            result.update(_message(code, value))
        elif code.startswith("[]"):
            result.setdefault(json_name, []).append(_value(code[2:], value))
        elif code.startswith("{}"):
            key, item = _entry(code[2:], value)
            result.setdefault(json_name, {})[key] = item
        else:
            result[json_name] = _value(code, value)
    return {key: value for key, value in result.items() if value not in ("", None)}


def _entry(code: str, raw: bytes) -> tuple[str, Any]:
    parts = dict(_fields(raw))
    return parts.get(1, b"").decode(), _value(code, parts.get(2, b""))


def _value(code: str, raw: Any) -> Any:
    scalar = _SCALARS.get(code)
    return scalar(raw) if scalar is not None else _special(code, raw)


def _special(code: str, raw: bytes) -> Any:
    if code in _table():
        return _message(code, raw)
    parts = dict(_fields(raw))
    if code.endswith("Time"):
        return _time(parts, micro=code == "meta.v1.MicroTime")
    match code:
        case "quantity.Quantity":
            return parts.get(1, b"").decode()
        case "intstr.IntOrString":
            return parts.get(3, b"").decode() if parts.get(1, 0) else _signed(parts.get(2, 0))
        case "meta.v1.FieldsV1" | "runtime.RawExtension":
            return orjson.loads(parts.get(1) or b"{}")
        case "meta.v1.Duration":
            return f"{_signed(parts.get(1, 0)) / 1e9:g}s"
    raise ValueError(f"unknown type {code}")


def _time(parts: dict[int, Any], micro: bool) -> str | None:
    if not parts:
        return None
    stamp = datetime.fromtimestamp(_signed(parts.get(1, 0)), UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{stamp}.{parts.get(2, 0) // 1000:06d}Z" if micro else f"{stamp}Z"
