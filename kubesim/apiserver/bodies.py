"""The inputs of writes: options in the query, and objects and patches in bodies of JSON, YAML or protobuf."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson
import yaml
from aiohttp import web

from kubesim.apiserver import errors, protobuf, typed
from kubesim.apiserver.objects import VALIDATIONS, Write
from kubesim.apiserver.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kubesim.apiserver.resources import Resource, go_type
from kubesim.errors import DecodeError
from kubesim.unsimulated import sentence

Json = dict[str, Any]

_YAML = "application/yaml"
_MEDIA = ("application/json", _YAML, protobuf.MEDIA_TYPE)
_PATCH_TYPES = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH})
_APPLY = "application/apply-patch+yaml"
# Longest manager name the real server accepts.
_MANAGER_MAX = 128
# A message shows so much of a body that cannot be read.
_SHOWN = 30
_SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'
_KIND_AND_VERSION = (
    r'struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }'
)
_GO_KINDS = {list: "array", str: "string", bool: "bool", int: "number", float: "number"}


@dataclass(frozen=True)
class Expected:
    """The type that an endpoint takes."""

    api_version: str
    kind: str
    go_type: str
    older: str = ""
    """An older version of the kind that is taken as well."""

    @staticmethod
    def of(resource: Resource) -> Expected:
        """A resource's own type."""
        return Expected(resource.api_version, resource.kind, resource.go_type)


def expected_body(api_version: str, kind: str, older: str = "") -> Expected:
    """The type of a subresource's body."""
    return Expected(api_version, kind, go_type(api_version.rpartition("/")[0], kind), older)


def user_agent_program(request: web.BaseRequest) -> str:
    """The User-Agent up to its first slash: the default manager of what the request writes."""
    return request.headers.get("User-Agent", "unknown").split("/")[0][:_MANAGER_MAX]


def write_options(request: web.BaseRequest, subresource: str = "") -> Write:
    """The write options in the query. Raises StatusError 422."""
    query = request.query
    if not query:
        return Write(user_agent_program(request), subresource=subresource)
    manager = query.get("fieldManager", "")
    causes = _manager_causes(manager)
    causes += dry_run_causes(query.getall("dryRun", []))
    validation = query.get("fieldValidation", "")
    if validation not in VALIDATIONS:
        causes.append(errors.unsupported("fieldValidation", validation, VALIDATIONS))
    if causes:
        kind = {"POST": "CreateOptions", "PUT": "UpdateOptions"}.get(request.method, "PatchOptions")
        raise errors.invalid_request("meta.k8s.io", kind, causes)
    dry = "dryRun" in query
    return Write(manager or user_agent_program(request), dry, subresource, validation or "Warn")


def _manager_causes(manager: str) -> list[Json]:
    field = "fieldManager"
    if len(manager.encode()) > _MANAGER_MAX:
        hint = f"Too long: may not be more than {_MANAGER_MAX} bytes"
        return [errors.cause("FieldValueTooLong", field, hint)]
    for at, letter in enumerate(manager):
        if not letter.isprintable():
            return [errors.wrong(field, manager, f"invalid character U+{ord(letter):04X} (at position {at})")]
    return []


def dry_run_causes(given: list[str]) -> list[Json]:
    """Return the causes against the values of dryRun."""
    if all(value == "All" for value in given):
        return []
    shown = json.dumps(given, separators=(",", ":"))
    return [errors.cause("FieldValueNotSupported", "dryRun", f'Unsupported value: {shown}: supported values: "All"')]


def read_object(request: web.BaseRequest, raw: bytes, expected: Expected) -> Json:
    """The object in a body, without kind and apiVersion, which are checked. Raises StatusError 400 or 415."""
    unreadable = f"the object provided is unrecognized (must be of type {expected.kind}): "
    obj = _body(request, raw, unreadable)
    _check_kind(obj, expected, unreadable, raw)
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    return obj


def read_decoded(request: web.BaseRequest, raw: bytes, expected: Expected, write: Write) -> Json:
    """Decode a body that is not stored. Raises StatusError 400 or 415."""
    body, decoder = read_object(request, raw, expected), typed.Decoder()
    try:
        found: Json = decoder.decode(typed.shape_of(expected.api_version, expected.kind), body)
    except DecodeError as error:
        raise cannot_handle(expected.kind, expected.api_version, expected.kind, str(error)) from None
    if write.validation == "Strict" and decoder.unknown:
        why = f"strict decoding error: {', '.join(decoder.unknown)}"
        raise cannot_handle(expected.kind, expected.api_version, expected.kind, why)
    return found


def read_delete_options(request: web.BaseRequest, raw: bytes) -> Json:
    """The DeleteOptions in a body, {} without one. Raises StatusError 400 or 415."""
    if not raw.strip():
        return {}
    obj = _body(request, raw, "")
    kind, version = obj.pop("kind", "DeleteOptions"), obj.pop("apiVersion", "v1")
    if kind != "DeleteOptions":
        raise errors.bad_request(f'no kind "{kind}" is registered for version "{version}" {_SCHEME}')
    try:
        found: Json = typed.Decoder().decode(typed.shape_of("v1", "DeleteOptions"), obj)
    except DecodeError as error:
        raise errors.bad_request(str(error)) from None
    return found


def _body(request: web.BaseRequest, raw: bytes, unreadable: str) -> Json:
    kind = request.headers.get("Content-Type", "").partition(";")[0].strip() or "application/json"
    if kind == protobuf.MEDIA_TYPE:
        return protobuf.body(raw)
    if kind not in _MEDIA:
        raise errors.unsupported_media(_MEDIA)
    is_yaml = kind == _YAML and raw.lstrip()[:1] != b"{"
    try:
        obj = _from_yaml(raw) if is_yaml else _from_json(raw)
    except ValueError as error:
        what = "" if is_yaml else "couldn't get version/kind; json parse error: "
        raise errors.bad_request(f"{unreadable}{what}{error}{_shown(raw) if unreadable else ''}") from error
    if obj is None:
        obj = {}
    if not isinstance(obj, dict):
        why = (
            f"couldn't get version/kind; json parse error: json: cannot unmarshal {_GO_KINDS[type(obj)]} into Go value"
        )
        text = f"{unreadable}{why} of type {_KIND_AND_VERSION}{_shown(raw) if unreadable else ''}"
        raise errors.bad_request(text)
    return obj


def cannot_handle(kind: str, api_version: str, wanted: str, why: str) -> errors.StatusError:
    """400: a body that is no object of the wanted kind."""
    version = api_version.rpartition("/")[2]
    return errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {wanted}: {why}')


def _shown(raw: bytes) -> str:
    """The beginning of a body, for messages: as text if it looks like JSON, else in hexadecimal."""
    if not raw:
        return " (<empty>)"
    if raw.lstrip()[:1] == b"{":
        text = raw.decode(errors="replace")
        return f" ({text[:_SHOWN]} ...)" if len(text) > _SHOWN else f" ({text})"
    return f" ({raw[:_SHOWN].hex()}{' ...' if len(raw) > _SHOWN else ''})"


def _check_kind(obj: Json, expected: Expected, unreadable: str, raw: bytes) -> None:
    kind = obj.pop("kind", None) or expected.kind
    version = obj.pop("apiVersion", None) or expected.api_version
    if kind == expected.kind and version in (expected.api_version, expected.older):
        return
    if str(version).count("/") > 1:
        raise errors.bad_request(f"{unreadable}unexpected GroupVersion string: {version}{_shown(raw)}")
    if typed.is_known(version, kind):
        given = f"{version.rpartition('/')[2]}.{kind}"
        why = f"converting ({given}) to ({expected.go_type}): unknown conversion"
    else:
        why = f'no kind "{kind}" is registered for version "{version}" {_SCHEME}'
    raise cannot_handle(kind, version, expected.kind, why)


def _from_json(raw: bytes) -> Any:
    """Decode JSON. Raises ValueError in Go's words for the commonest mistakes."""
    try:
        return orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ValueError(_json_problem(raw, error)) from None


def _json_problem(raw: bytes, error: orjson.JSONDecodeError) -> str:
    if not raw.strip() or error.pos >= len(raw.decode(errors="replace").rstrip()):
        return "unexpected end of JSON input"
    return str(error)


def check_patch_type(request: web.BaseRequest) -> None:
    """Refuse a body that is no patch, or one of server-side apply, by StatusError 415."""
    if request.content_type == _APPLY:
        raise errors.StatusError(415, "UnsupportedMediaType", sentence("server-side apply"), {})
    if request.content_type not in _PATCH_TYPES:
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def read_patch(request: web.BaseRequest, raw: bytes) -> tuple[str, Any]:
    """(patch type, patch). Raises StatusError 400."""
    kind = request.content_type
    try:
        patch = _from_json(raw)
    except ValueError:
        raise errors.bad_request("invalid JSON patch") from None
    wanted = list if kind == JSON_PATCH else dict
    if kind == MERGE_PATCH and patch is None:
        raise errors.bad_request("Invalid JSON Patch")
    if patch is None:
        return kind, wanted()
    if not isinstance(patch, wanted):
        go = "[]handlers.jsonPatchOp" if kind == JSON_PATCH else "map[string]interface {}"
        prefix = "" if kind == STRATEGIC_PATCH else "error decoding patch: "
        given = {**_GO_KINDS, dict: "object"}[type(patch)]
        raise errors.bad_request(f"{prefix}json: cannot unmarshal {given} into Go value of type {go}")
    return kind, patch


class _JsonTypes(yaml.SafeLoader):
    """YAML with JSON's types only: timestamps stay strings. Aliases are refused: they can blow a small body up."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node as SafeLoader does, without aliases."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("aliases are not accepted")
        return super().compose_node(parent, index)


_JsonTypes.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != "tag:yaml.org,2002:timestamp"]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def _from_yaml(raw: bytes) -> Any:
    """Decode the first document. Raises ValueError."""
    try:
        loader = _JsonTypes(raw.decode())
        try:
            found = loader.get_data() if loader.check_data() else None  # type: ignore[no-untyped-call]
        finally:
            loader.dispose()
        return orjson.loads(orjson.dumps(found))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        raise ValueError(f"yaml: line {line}: {error.problem}") from error
    except (yaml.YAMLError, orjson.JSONEncodeError) as error:
        raise ValueError(f"yaml: {error}") from error
