"""Read the inputs of writes: options in the query, and objects and patches in bodies of JSON or protobuf."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import web

from kubesim.apiserver import errors, protobuf, typed
from kubesim.apiserver.objects import VALIDATIONS, Write
from kubesim.apiserver.patches import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH
from kubesim.apiserver.resources import Resource
from kubesim.errors import DecodeError
from kubesim.unsimulated import sentence

Json = dict[str, Any]

_PATCH_TYPES = frozenset({JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH})
_APPLY = "application/apply-patch+yaml"
# The longest manager name that the real server accepts.
_MANAGER_MAX = 128
_SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'


@dataclass(frozen=True)
class Expected:
    """The type of object that an endpoint takes."""

    api_version: str
    kind: str
    older: str = ""
    """An older version of the kind that is taken as well."""

    @staticmethod
    def of(resource: Resource) -> Expected:
        """Return a resource's own type."""
        return Expected(resource.api_version, resource.kind)


def user_agent_program(request: web.BaseRequest) -> str:
    """Return the User-Agent up to its first slash, which is the default manager for what the request writes."""
    return request.headers.get("User-Agent", "unknown").split("/")[0][:_MANAGER_MAX]


def write_options(request: web.BaseRequest, subresource: str = "") -> Write:
    """Return the write options in the query. Raises StatusError 422."""
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
    """Return the object in a body without kind and apiVersion, which are checked. Raises StatusError 400 or 415."""
    unreadable = f"the object provided is unrecognized (must be of type {expected.kind}): "
    obj = _body(request, raw, unreadable)
    _check_kind(obj, expected)
    if obj.get("metadata") is None:
        obj["metadata"] = {}
    return obj


def read_decoded(request: web.BaseRequest, raw: bytes, expected: Expected, write: Write) -> Json:
    """Decode a body that is not stored. Raises StatusError 400 or 415."""
    body, decoder = read_object(request, raw, expected), typed.Decoder()
    try:
        found: Json = decoder.decode(typed.shape_of(expected.api_version, expected.kind), body)
    except DecodeError as error:
        raise errors.cannot_handle(expected.kind, expected.api_version, expected.kind, str(error)) from None
    if write.validation == "Strict" and decoder.unknown:
        why = f"strict decoding error: {', '.join(decoder.unknown)}"
        raise errors.cannot_handle(expected.kind, expected.api_version, expected.kind, why)
    return found


def read_delete_options(request: web.BaseRequest, raw: bytes) -> Json:
    """Return the DeleteOptions in a body, {} without a body. Raises StatusError 400 or 415."""
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
    if kind == "application/yaml":
        raise errors.StatusError(415, "UnsupportedMediaType", sentence("a body in YAML"), {})
    if kind != "application/json":
        raise errors.unsupported_media(("application/json", protobuf.MEDIA_TYPE))
    try:
        obj = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.bad_request(f"{unreadable}it is no JSON: {error}") from None
    if not isinstance(obj, dict):
        raise errors.bad_request(f"{unreadable}it is no JSON object")
    return obj


def _check_kind(obj: Json, expected: Expected) -> None:
    kind = obj.pop("kind", None) or expected.kind
    version = obj.pop("apiVersion", None) or expected.api_version
    if kind == expected.kind and version in (expected.api_version, expected.older):
        return
    why = f"send one of the kind {expected.kind} in {expected.api_version}"
    raise errors.cannot_handle(kind, version, expected.kind, why)


def check_patch_type(request: web.BaseRequest) -> None:
    """Refuse a body that is no patch, or one of server-side apply, by StatusError 415."""
    if request.content_type == _APPLY:
        raise errors.StatusError(415, "UnsupportedMediaType", sentence("server-side apply"), {})
    if request.content_type not in _PATCH_TYPES:
        raise errors.StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", {})


def read_patch(request: web.BaseRequest, raw: bytes) -> tuple[str, Any]:
    """Return the patch's type and the patch. Raises StatusError 400."""
    kind = request.content_type
    wanted = list if kind == JSON_PATCH else dict
    try:
        patch = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise errors.bad_request("invalid JSON patch") from None
    if not isinstance(patch, wanted):
        raise errors.bad_request(
            f"a patch of the type {kind} has to be a JSON {'list' if wanted is list else 'object'}"
        )
    return kind, patch
