"""Failures as Kubernetes speaks them: an HTTP code, a reason and a `Status` body clients can parse."""

from __future__ import annotations

from typing import Any

from gameday.rehearsal.apiserver.resources import Resource

Json = dict[str, Any]


class ApiError(Exception):
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

    def body(self) -> Json:
        """The `Status` object."""
        status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
        status["message"] = self.message
        if self.reason:
            status["reason"] = self.reason
        if self.details:
            status["details"] = self.details
        status["code"] = self.code
        return status


def _details(resource: Resource, name: str) -> Json:
    details: Json = {"name": name} if name else {}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Resource, name: str) -> ApiError:
    """404: no such object."""
    return ApiError(404, "NotFound", f'{resource.qualified} "{name}" not found', _details(resource, name))


def no_such_path() -> ApiError:
    """404: no such resource or path."""
    return ApiError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str) -> ApiError:
    """409: create of a name that is taken."""
    return ApiError(409, "AlreadyExists", f'{resource.qualified} "{name}" already exists', _details(resource, name))


def conflict(resource: Resource, name: str, why: str = "") -> ApiError:
    """409: optimistic lock or precondition lost."""
    why = why or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {resource.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", message, _details(resource, name))


def bad_request(message: str) -> ApiError:
    """400: the request itself makes no sense."""
    return ApiError(400, "BadRequest", message)


def unauthorized() -> ApiError:
    """401: no or unknown credentials."""
    return ApiError(401, "Unauthorized", "Unauthorized")


def forbidden(resource: Resource, name: str, why: str) -> ApiError:
    """403 by a rule of admission (RBAC's own message is made in rbac.py)."""
    shown = f'{resource.qualified} "{name}"' if name else resource.qualified
    return ApiError(403, "Forbidden", f"{shown} is forbidden: {why}", _details(resource, name))


def expired(message: str) -> ApiError:
    """410: the resourceVersion or continue token has left the event window."""
    return ApiError(410, "Expired", message)


def method_not_allowed() -> ApiError:
    """405."""
    message = "the server does not allow this method on the requested resource"
    return ApiError(405, "MethodNotAllowed", message)


def unsupported_media(got: str, supported: list[str]) -> ApiError:
    """415: a body in a format we do not read."""
    message = (
        f"the body of the request was in an unknown format - accepted media types include: {', '.join(supported)}"
        f" (got {got or 'none'})"
    )
    return ApiError(415, "UnsupportedMediaType", message)


def too_many(message: str, causes: list[Json] | None = None, retry_after_s: int | None = None) -> ApiError:
    """429."""
    details: Json = {}
    if causes:
        details["causes"] = causes
    if retry_after_s is not None:
        details["retryAfterSeconds"] = retry_after_s
    return ApiError(429, "TooManyRequests", message, details, retry_after_s)


def cause(reason: str, field: str, message: str) -> Json:
    """One field's complaint; `reason` is e.g. FieldValueRequired, FieldValueInvalid."""
    return {"reason": reason, "message": message, "field": field}


def required(field: str, hint: str = "") -> Json:
    """A required field that is missing."""
    return cause("FieldValueRequired", field, "Required value" + (f": {hint}" if hint else ""))


def wrong(field: str, value: object, hint: str) -> Json:
    """A value that breaks a rule."""
    shown = f'"{value}"' if isinstance(value, str) else str(value)
    return cause("FieldValueInvalid", field, f"Invalid value: {shown}: {hint}")


def unsupported(field: str, value: object, supported: tuple[str, ...]) -> Json:
    """A value outside an enum."""
    names = ", ".join(f'"{name}"' for name in supported)
    return cause("FieldValueNotSupported", field, f'Unsupported value: "{value}": supported values: {names}')


def invalid(resource: Resource, name: str, causes: list[Json]) -> ApiError:
    """422 with the causes spelled out."""
    texts = [f"{c['field']}: {c['message']}" for c in causes]
    shown = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details = {**_details(resource, name), "kind": resource.kind, "causes": causes}
    return ApiError(422, "Invalid", f'{kind} "{name}" is invalid: {shown}', details)
