"""Parts of answers that several writing scripts compare."""

from __future__ import annotations

from typing import Any


def why_not(body: Any) -> Any:
    """A patch's refusal without the object that it made, shown with its version; of what is accepted the kind."""
    if body["kind"] != "Status":
        return body["kind"]
    reasons = [cause["message"].rpartition('": ')[2] for cause in body["details"]["causes"]]
    return [body["code"], body["reason"], body["message"].partition("Invalid value")[0], reasons]


def entries(body: Any) -> Any:
    """Return managedFields by manager: the servers order them by the second in which they were written."""
    parts = ("operation", "manager", "subresource")
    found = body["metadata"].get("managedFields", [])
    return sorted(found, key=lambda entry: tuple(entry.get(part, "") for part in parts))


def owned(body: Any) -> Any:
    """An object with its managedFields by manager."""
    if body["kind"] == "Status" or "managedFields" not in body["metadata"]:
        return body
    return {**body, "metadata": {**body["metadata"], "managedFields": entries(body)}}
