"""Changes that a stand-in makes to a node, and their reversal: conditions, taints, labels, a cordon, Events."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gameday.detectors.models import Condition, Cordon, Event, Fact, Label, Taint
from gameday.detectors.resolve import filled_in
from gameday.plan.repair_chain import Sign
from kubesim.client import STRATEGIC_MERGE_PATCH, ApiClient, Object
from kubesim.clock import now_utc, rfc3339
from kubesim.controllers.events import NORMAL, WARNING, EventRecorder
from kubesim.errors import ApiError

Effect = Condition | Taint | Label | Cordon | Event
_CONFLICT_TRIES = 8
_LABEL_VALUE = "true"
"""Value of a label for which the profile gives none."""


class Actions:
    """Writes to nodes under one identity. Methods raise ApiError."""

    def __init__(self, api: ApiClient, events: EventRecorder, name: str) -> None:
        self._api = api
        self._events = events
        self._name = name

    async def do(self, node: Object, effect: Effect, facts: Mapping[str, Fact], said: str) -> None:
        path, message = _path(node), f"stand-in for {self._name}: {said}"
        match effect:
            case Condition():
                reason = filled_in(effect.reason or "Fault", facts)
                await self._condition(path, effect.type, effect.status, reason, message)
            case Taint():
                await self._taints(path, lambda taints: [*taints, _taint(effect)])
            case Label():
                value = _LABEL_VALUE if effect.value is None else effect.value
                await self._api.patch(path, {"metadata": {"labels": {effect.key: value}}})
            case Cordon():
                await self._api.patch(path, {"spec": {"unschedulable": True}})
            case Event():
                reason = filled_in(effect.reason, facts)
                self._events.record(node, "Node", "v1", reason, message[:1024], effect.type or WARNING)

    async def show(self, node: Object, sign: Sign, said: str) -> None:
        """Write a sign of the stack's repair: a label, an annotation, a taint, a condition or an Event."""
        path, message = _path(node), f"stand-in for {self._name}: {said}"
        if sign.label:
            value = next(iter(sign.label.values), _LABEL_VALUE)
            await self._api.patch(path, {"metadata": {"labels": {sign.label.key: value}}})
        elif sign.annotation:
            await self._api.patch(path, {"metadata": {"annotations": {sign.annotation.key: message}}})
        elif sign.taint:
            taint = {"key": sign.taint.key, "effect": "NoSchedule"}
            await self._taints(path, lambda taints: [*taints, taint])
        elif sign.condition:
            reason = sign.condition.reason or "Repair"
            await self._condition(path, sign.condition.type, sign.condition.status, reason, message)
        elif sign.event:
            self._events.record(node, "Node", "v1", sign.event.reason, message[:1024], NORMAL)

    async def take_back(self, node: Object, effect: Effect) -> None:
        """Take back the effect; an Event stays, because it reports the past."""
        path = _path(node)
        match effect:
            case Condition():
                well = {"True": "False", "False": "True"}.get(effect.status, "True")
                healthy = f"stand-in for {self._name}: no health failures"
                await self._condition(path, effect.type, well, f"{effect.type}IsHealthy", healthy)
            case Taint():
                await self._taints(path, lambda taints: [one for one in taints if one["key"] != effect.key])
            case Label():
                await self._api.patch(path, {"metadata": {"labels": {effect.key: None}}})
            case Cordon():
                await self._api.patch(path, {"spec": {"unschedulable": None}})

    async def _condition(self, path: str, kind: str, status: str, reason: str, message: str) -> None:
        now = rfc3339(now_utc())
        condition = {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        await self._api.patch(f"{path}/status", {"status": {"conditions": [condition]}}, STRATEGIC_MERGE_PATCH)

    async def _taints(self, path: str, change: Callable[[list[Object]], list[Object]]) -> None:
        """Change the taints. The list is written as a whole, and so against the version that was read."""
        for left in reversed(range(_CONFLICT_TRIES)):
            node = await self._api.get(path)
            before: list[Object] = (node.get("spec") or {}).get("taints") or []
            after = change(before)
            if after == before or any(one in before for one in after[len(before) :]):
                return
            version = node["metadata"]["resourceVersion"]
            try:
                await self._api.patch(
                    path, {"metadata": {"resourceVersion": version}, "spec": {"taints": after or None}}
                )
                return
            except ApiError as error:
                if not error.conflict or not left:
                    raise


def _taint(effect: Taint) -> Object:
    return {"key": effect.key, "value": effect.value, "effect": str(effect.effect)}


def _path(node: Object) -> str:
    return f"/api/v1/nodes/{node['metadata']['name']}"
