"""The types of the built-in kinds: their fields, the fields' values, and how lists and maps of them merge.

The real server decodes every body into these types. So an unknown field is dropped (or refused, if the client asks for
strictness), a wrong type is a 400, an empty value of an optional field is no value, and quantities and times have one
form. types.json has the fields of release 1.37: names, types and merge keys from its OpenAPI documents, the marks for
empty values from the tags in k8s.io/api and k8s.io/apimachinery.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson

from kubesim import quantity
from kubesim.errors import DecodeError

Json = dict[str, Any]

_GIVEN = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}
_BITS = {"int32": 31, "int64": 63}
# Go's names of types, for messages; the others have their names in types.json.
_GO_NAMES = {"bytes": "[]uint8", "any": "runtime.RawExtension", "Quantity": "resource.Quantity"}
# Defaults of key fields, for items that lack them.
_KEY_DEFAULTS = {"core.v1.ContainerPort": {"protocol": "TCP"}}


class Struct:
    """A Go struct. `filled` are the fields that are written even if they are empty."""

    __slots__ = ("atomic", "fields", "filled", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.fields: dict[str, Shape] = {}
        self.filled: tuple[tuple[str, Shape], ...] = ()
        self.atomic = False


class Shape:
    """The values allowed at one place of an object, and how they merge there.

    `kind` is struct, map, list, any, or the name of a scalar. `keep`: an empty value counts if it is written (a Go
    pointer). `always`: it is written in any case (no omitempty).
    """

    __slots__ = (
        "atomic", "elem", "go_name", "is_always_written", "is_set", "keeps_empty", "keys", "kind", "merge_key",
        "merges", "struct",
    )  # fmt: skip

    def __init__(self, kind: str, go_name: str = "") -> None:
        self.kind = kind
        self.go_name = go_name or _GO_NAMES.get(kind, kind)
        self.struct: Struct | None = None
        self.elem: Shape | None = None
        self.atomic = False
        self.keys: tuple[tuple[str, Any], ...] = ()
        """Fields that identify a list's items for server-side apply, with their defaults."""
        self.is_set = False
        self.merges = False
        self.merge_key = ""
        """The field that identifies a list's items for a strategic merge patch; empty, with `merges`, for a set."""
        self.keeps_empty = False
        self.is_always_written = False

    def below(self, name: str) -> Shape:
        """Return the shape of a struct's field or a map's value."""
        if self.struct is not None:
            return self.struct.fields.get(name, ANY)
        return self.elem or ANY

    @property
    def items(self) -> Shape:
        """The shape of a list's items."""
        return self.elem or ANY

    def empty(self) -> Any:
        """Return the value that is written if none was given."""
        if self.keeps_empty or self.kind in ("list", "map", "any", "Time", "MicroTime", "bytes"):
            return None
        if self.struct is not None:
            return {name: shape.empty() for name, shape in self.struct.filled}
        return {"string": "", "bool": False, "Quantity": "0"}.get(self.kind, 0)


ANY = Shape("any")
ANY.atomic = True


class _Types:
    """Shapes by type name, made when first needed, because types may contain themselves."""

    def __init__(self) -> None:
        document = orjson.loads(Path(__file__).with_name("types.json").read_bytes())
        self.kinds: dict[str, str] = document["kinds"]
        self._types: dict[str, Json] = document["types"]
        self._made: dict[str, Struct] = {}

    def shape(self, text: str) -> Shape:
        """Return the shape of a type written as in types.json: `string`, `[]core.v1.Container`, `{}string`."""
        if text[:2] in ("[]", "{}"):
            elem = self.shape(text[2:])
            kind, prefix = ("list", "[]") if text[0] == "[" else ("map", "map[string]")
            shape = Shape(kind, prefix + elem.go_name)
            shape.elem = elem
            return shape
        if "." not in text:
            return Shape(text)
        shape = Shape("struct", text.partition(".")[2])
        shape.struct = self._struct(text)
        shape.atomic = shape.struct.atomic
        return shape

    def _struct(self, name: str) -> Struct:
        struct = self._made.get(name)
        if struct is None:
            struct = self._made[name] = Struct(name.rpartition(".")[2])
            fields = dict(self._types[name])
            struct.atomic = fields.pop("@", "") == "atomic"
            struct.fields = {field: self._field(spec) for field, spec in fields.items()}
            struct.filled = tuple((field, shape) for field, shape in struct.fields.items() if shape.is_always_written)
        return struct

    def _field(self, spec: Any) -> Shape:
        text, rules = spec if isinstance(spec, list) else (spec, {})
        bare = text.rstrip("*!")
        shape = self.shape(bare)
        shape.go_name = rules.get("go", shape.go_name)
        shape.keeps_empty, shape.is_always_written = "*" in text[len(bare) :], "!" in text[len(bare) :]
        shape.is_set = bool(rules.get("set"))
        shape.atomic = shape.atomic or bool(rules.get("atomic"))
        shape.merges = "merge" in rules
        shape.merge_key = rules["merge"] if isinstance(rules.get("merge"), str) else ""
        defaults = _KEY_DEFAULTS.get(bare[2:], {})
        for key in rules.get("keys", ()):
            inside = shape.items.below(key)
            shape.keys += ((key, defaults.get(key, inside.empty() if inside.is_always_written else None)),)
        return shape


_TYPES = _Types()


@cache
def shape_of(api_version: str, kind: str) -> Shape:
    """Return the shape of a kind's objects. Raises KeyError for kinds that are not served."""
    group, _, version = api_version.rpartition("/")
    return _TYPES.shape(_TYPES.kinds[f"{group}/{version}/{kind}"])


class Decoder:
    """Decodes one body. `unknown` collects the unknown fields, in the words of a strict decoder."""

    def __init__(self) -> None:
        self.unknown: list[str] = []

    def decode(self, shape: Shape, value: Any, old: Any = None) -> Any:
        """Return the value as it is stored; the parts that it shares with `old` are not looked at again.

        Raises DecodeError.
        """
        return self._value(shape, value, old, (), "")

    def _value(self, shape: Shape, value: Any, old: Any, path: tuple[str, ...], struct: str) -> Any:
        if value is old:
            return value
        kind = shape.kind
        if kind == "string":
            if type(value) is str:
                return value
            raise _mismatch(shape, value, path, struct)
        if kind == "struct":
            return self._struct(shape, value, old, path, struct)
        if kind == "list":
            return self._list(shape, value, path, struct)
        if kind == "map":
            return self._map(shape, value, old, path, struct)
        return value if kind == "any" else _scalar(shape, value, path, struct)

    def _struct(self, shape: Shape, value: Any, old: Any, path: tuple[str, ...], outer: str) -> Json:
        if type(value) is not dict:
            raise _mismatch(shape, value, path, outer)
        struct = shape.struct
        assert struct is not None
        fields, old_members, result = struct.fields, old if type(old) is dict else {}, {}
        for name, item in value.items():
            field = fields.get(name)
            if field is None:
                self.unknown.append(f'unknown field "{_strict(path, name)}"')
                continue
            if item is None:
                continue
            was = old_members.get(name)
            if item is was:
                result[name] = item
                continue
            decoded = self._value(field, item, was, (*path, name), struct.name)
            if decoded or field.keeps_empty or field.kind == "struct":
                result[name] = decoded
        for name, field in struct.filled:
            if name not in result:
                result[name] = field.empty()
        return result

    def _list(self, shape: Shape, value: Any, path: tuple[str, ...], struct: str) -> list[Any]:
        if type(value) is not list:
            raise _mismatch(shape, value, path, struct)
        items = shape.items
        if items.kind == "string" and all(type(item) is str for item in value):
            return value
        none = items.empty()
        return [
            none if item is None else self._value(items, item, None, (*path, f"[{index}]"), struct)
            for index, item in enumerate(value)
        ]

    def _map(self, shape: Shape, value: Any, old: Any, path: tuple[str, ...], struct: str) -> Json:
        if type(value) is not dict:
            raise _mismatch(shape, value, path, struct)
        items = shape.items
        if items.kind == "string" and all(type(item) is str for item in value.values()):
            return value
        none, old_members = items.empty(), old if type(old) is dict else {}
        return {
            name: none if item is None else self._value(items, item, old_members.get(name), (*path, f".{name}"), struct)
            for name, item in value.items()
        }


def _strict(path: tuple[str, ...], name: str) -> str:
    """Return a field's path in the words of a strict decoder, such as `spec.containers[0].nam`."""
    text = ""
    for part in (*path, name):
        text += part if part[0] in "[." else f".{part}"
    return text[1:]


def _mismatch(shape: Shape, value: Any, path: tuple[str, ...], struct: str, shown: str = "") -> DecodeError:
    given = _GIVEN[type(value)] + shown
    # Go's path has neither indices nor a map's keys.
    field = ".".join(part for part in path if part[0] not in "[.")
    message = f"json: cannot unmarshal {given} into Go struct field {struct}.{field} of type {shape.go_name}"
    go = {str: "string", bool: "bool", int: "int64", float: "float64", dict: "map", list: "slice"}[type(value)]
    wanted = {"struct": "struct", "map": "map", "list": "slice"}.get(shape.kind)
    return DecodeError(
        message, f"cannot restore {wanted} from: {go}" if wanted else f"cannot convert {go} to {shape.go_name}"
    )


def _scalar(shape: Shape, value: Any, path: tuple[str, ...], struct: str) -> Any:
    if shape.kind in ("Time", "MicroTime") and type(value) is not str:
        raise _mismatch(Shape("string"), value, path, struct)
    if shape.kind in _BITS:
        return _whole(shape, value, path, struct)
    convert = _CONVERT.get(shape.kind)
    if convert is not None and (shape.kind != "bytes" or type(value) is str):
        return convert(value)
    if type(value) not in {"bool": (bool,), "float64": (int, float)}.get(shape.kind, ()):
        raise _mismatch(shape, value, path, struct)
    return value


def _whole(shape: Shape, value: Any, path: tuple[str, ...], struct: str) -> int:
    if type(value) not in (int, float):
        raise _mismatch(shape, value, path, struct)
    whole = int(value)
    if whole != value or not -(1 << _BITS[shape.kind]) <= whole < 1 << _BITS[shape.kind]:
        raise _mismatch(shape, value, path, struct, f" {value}")
    return whole


def _int_or_string(value: Any) -> int | str:
    if type(value) is str or type(value) is int:
        return value
    raise DecodeError(f"json: cannot unmarshal {_GIVEN[type(value)]} into Go value of type int32")


def _quantity(value: Any) -> str:
    if type(value) not in (str, int, float):
        raise DecodeError(quantity.MALFORMED)
    try:
        return quantity.canonical(str(value).strip())
    except ValueError as error:
        raise DecodeError(str(error)) from None


_TIME = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)([.,]\d+)?(Z|[+-]\d\d:\d\d)$")
_LAYOUTS = {False: "2006-01-02T15:04:05Z07:00", True: "2006-01-02T15:04:05.000000Z07:00"}
# The dot and six digits, which a MicroTime must have.
_MICRO = 7


def _time(text: str, micro: bool) -> str:
    found = _TIME.match(text)
    if found is None:
        raise _unparsed(text, micro, text, "2006")
    fraction = found[2] or ""
    if micro and len(fraction) != _MICRO:
        raise _unparsed(text, micro, fraction + found[3], ".000000")
    if found[3] == "Z" and len(fraction) == (_MICRO if micro else 0):
        return text
    try:
        when = datetime.fromisoformat(f"{found[1]}{(fraction or '.0')[:_MICRO]}{found[3]}").astimezone(UTC)
    except ValueError:
        raise DecodeError(f'parsing time "{text}": day out of range') from None
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")


def _unparsed(text: str, micro: bool, rest: str, part: str) -> DecodeError:
    return DecodeError(f'parsing time "{text}" as "{_LAYOUTS[micro]}": cannot parse "{rest}" as "{part}"')


def _bytes(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        at = next((index for index, letter in enumerate(text) if not (letter.isalnum() or letter in "+/=")), len(text))
        raise DecodeError(f"illegal base64 data at input byte {at}") from None
    return text


_CONVERT: dict[str, Callable[[Any], Any]] = {
    "IntOrString": _int_or_string,
    "MicroTime": lambda text: _time(text, micro=True),
    "Quantity": _quantity,
    "Time": lambda text: _time(text, micro=False),
    "bytes": _bytes,
}
