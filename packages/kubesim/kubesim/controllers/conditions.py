"""Find, set and write status conditions."""

from __future__ import annotations

from datetime import datetime

from kubesim.client import ApiClient, Object
from kubesim.clock import now_utc, rfc3339
from kubesim.errors import ApiError

CONFLICT_TRIES = 5  # client-go's retry.DefaultRetry


def condition(obj: Object, kind: str) -> Object | None:
    for each in (obj.get("status") or {}).get("conditions") or ():
        if each["type"] == kind:
            found: Object = each
            return found
    return None


def holds(obj: Object, kind: str) -> bool:
    found = condition(obj, kind)
    return found is not None and found.get("status") == "True"


def with_condition(obj: Object, new: Object, now: datetime) -> list[Object]:
    """Return the object's conditions with `new` set; lastTransitionTime changes only with the status."""
    old = condition(obj, new["type"])
    same = old is not None and old.get("status") == new["status"]
    moved = old.get("lastTransitionTime") if same and old else rfc3339(now)
    others = [c for c in (obj.get("status") or {}).get("conditions") or () if c["type"] != new["type"]]
    return [*others, {**new, "lastTransitionTime": moved}]


async def write_condition(api: ApiClient, path: str, obj: Object, new: Object, also: Object | None = None) -> None:
    """Write a condition, and the status fields in `also`, on the version it was decided on; retry on a conflict.

    The whole list is written, and the precondition on resourceVersion protects others' conditions. Raises ApiError.
    """
    for remaining in reversed(range(CONFLICT_TRIES)):
        body = {
            "metadata": {"resourceVersion": obj["metadata"]["resourceVersion"]},
            "status": {"conditions": with_condition(obj, new, now_utc()), **(also or {})},
        }
        try:
            await api.patch(f"{path}/status", body)
            return
        except ApiError as error:
            if not error.conflict or not remaining:
                raise
        obj = await api.get(path)
