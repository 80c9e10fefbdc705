"""Failures as in Kubernetes: an HTTP code, a reason and a `Status` body that clients can parse."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from kubesim.apiserver.resources import Resource
from kubesim.errors import KubesimError

Json = dict[str, Any]


class StatusError(KubesimError):
    """A request that ends in a `Status` of kind Failure."""

    def __init__(
        self, code: int, reason: str, message: str, details: Json | None = None, retry_after_s: int | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = details
        self.retry_after_s = retry_after_s
        self.metadata: Json = {}
        self.warnings: list[str] = []

    def body(self) -> Json:
        """The `Status` object."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": self.metadata, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details is not None:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: Resource, name: str) -> Json:
    details: Json = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> StatusError:
    """404: no such object."""
    return StatusError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> StatusError:
    """404: no such resource or path."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def not_simulated(sentence: str) -> StatusError:
    """404 for what only a real server has; a client that can do without it goes on."""
    return StatusError(404, "NotFound", sentence, {})


def already_exists(resource: Resource, name: str, *, is_terminating: bool) -> StatusError:
    """409: a new object's name is taken, perhaps by an object that is terminating."""
    message = f'{"object is being deleted: " if is_terminating else ""}{resource.qualified} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> StatusError:
    """409: the optimistic lock or a precondition failed."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(resource, name))


def kind_conflict(kind: str, name: str, why: str) -> StatusError:
    """409 of a check that names an object by its kind."""
    message = f'Operation cannot be fulfilled on {kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, {"name": name, "kind": kind})


def bad_request(message: str) -> StatusError:
    """400: the request itself makes no sense."""
    return StatusError(400, "BadRequest", message)


def cannot_handle(kind: str, api_version: str, wanted: str, why: str) -> StatusError:
    """400: a body that is no object of the wanted kind."""
    version = api_version.rpartition("/")[2]
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {wanted}: {why}')


def unauthorized() -> StatusError:
    """401: no or unknown credentials."""
    return StatusError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> StatusError:
    """403 by a rule of admission (RBAC's own message is made in rbac.py)."""
    shown = f'{resource.qualified} "{name}"' if name else resource.qualified
    return StatusError(403, "Forbidden", f"{shown} is forbidden: {why}", _details(resource, name))


def expired(message: str) -> StatusError:
    """410: the resourceVersion or continue token has left the event window."""
    return StatusError(410, "Expired", message)


def method_not_allowed() -> StatusError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, {})


def not_acceptable(message: str, details: Json | None = None) -> StatusError:
    """406: the client accepts no form that we have."""
    return StatusError(406, "NotAcceptable", message, details)


def unsupported_media(supported: Iterable[str]) -> StatusError:
    """415: a body in a format we do not read."""
    wanted = ", ".join(supported)
    message = f"the body of the request was in an unknown format - accepted media types include: {wanted}"
    return StatusError(415, "UnsupportedMediaType", message)


def unreadable(code: int, reason: str, limit: int) -> StatusError:
    """Failure of a request that is no proper HTTP; `limit` is the largest body in bytes."""
    if code == 413:
        return StatusError(code, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")
    return StatusError(code, "", f"the request cannot be read: {reason}")


def failed(message: str) -> StatusError:
    """500 without a reason, for requests that the real server does not expect."""
    return StatusError(500, "", message)


def too_many(message: str, causes: list[Json] | None = None, retry_after_s: int | None = None) -> StatusError:
    """429: too many requests, or a disruption that a budget does not allow now."""
    details: Json = {}
    if causes:
        details["causes"] = causes
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    return StatusError(429, "TooManyRequests", message, details, retry_after_s)


def cause(reason: str, field: str, message: str) -> Json:
    """Return the complaint about a field; `reason` is e.g. FieldValueRequired, FieldValueInvalid."""
    return {"reason": reason, "message": message, "field": field}


def required(field: str, hint: str = "") -> Json:
    """Return the complaint about a missing required field."""
    return cause("FieldValueRequired", field, "Required value" + (f": {hint}" if hint else ""))


def as_json(value: object) -> str:
    """Return a value as messages show it: JSON without spaces."""
    return orjson.dumps(value).decode()


def wrong(field: str, value: object, hint: str) -> Json:
    """Return the complaint about a value that breaks a rule."""
    return cause("FieldValueInvalid", field, f"Invalid value: {as_json(value)}: {hint}")


def forbidden_field(field: str, why: str) -> Json:
    """Return the complaint about a field that may not be set or changed."""
    return cause("FieldValueForbidden", field, f"Forbidden: {why}")


def duplicate(field: str, value: object, hint: str = "") -> Json:
    """Return the complaint about a value that is there already."""
    return cause("FieldValueDuplicate", field, f"Duplicate value: {as_json(value)}" + (f": {hint}" if hint else ""))


def missing_reference(field: str, value: object) -> Json:
    """Return the complaint about a reference to something absent."""
    return cause("FieldValueNotFound", field, f"Not found: {as_json(value)}")


def too_long(field: str, limit: int) -> Json:
    """Return the complaint about more bytes than the limit."""
    return cause("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def unsupported(field: str, value: object, supported: Iterable[str]) -> Json:
    """Return the complaint about a value outside an enum."""
    names = ", ".join(f'"{name}"' for name in supported)
    return cause("FieldValueNotSupported", field, f"Unsupported value: {as_json(value)}: supported values: {names}")


def invalid_version(resource: Resource, name: str, problem: Json) -> StatusError:
    """422 of an update that lacks the version; unlike others, it names the resource and not the kind."""
    message = f'{resource.qualified} "{name}" is invalid: {_causes_text([problem])}'
    return StatusError(422, "Invalid", message, {**_details(resource, name), "causes": [problem]})


def invalid_patch(value: str, why: object) -> StatusError:
    """422: the patched object cannot be decoded. `value` is shown."""
    problem = wrong("patch", value, str(why))
    return StatusError(422, "Invalid", f' "" is invalid: {_causes_text([problem])}', {"causes": [problem]})


def invalid(resource: Resource, name: str, causes: list[Json]) -> StatusError:
    """422 with the causes spelled out."""
    shown = _causes_text(causes)
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {**_details(resource, name), "kind": resource.kind, "causes": causes}
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {shown}', details)


def invalid_request(group: str, kind: str, causes: list[Json]) -> StatusError:
    """422 for requests that are not stored: options, reviews (with an empty `kind`), token requests."""
    details: Json = {"group": group, **({"kind": kind} if kind else {}), "causes": causes}
    return StatusError(422, "Invalid", f'{kind}.{group} "" is invalid: {_causes_text(causes)}', details)


def _causes_text(causes: list[Json]) -> str:
    texts = [f"{cause['field']}: {cause['message']}" for cause in causes]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
