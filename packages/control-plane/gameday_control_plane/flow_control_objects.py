"""Priority levels and flow schemas of the API server (API Priority and Fairness, flowcontrol.apiserver.k8s.io/v1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kubernetes import client

from gameday.cluster.field_managers import last_writer
from gameday.cluster.kubernetes import MANAGER, Kubernetes, absent_is_none
from gameday.cluster.manifests import RUN_LABEL
from gameday_control_plane.settings import FlowControl


class FlowControlKind(StrEnum):
    """The two kinds of objects, by the names of the official client's methods."""

    SCHEMA = "flow_schema"
    LEVEL = "priority_level_configuration"


@dataclass(frozen=True)
class Shares:
    """The shares that give a level exactly the wanted seats."""

    own: int
    """Shares of the level."""
    spare: int
    """Shares of a second level that takes no requests and lends all its seats; 0: it is not needed.

    The API server rounds seats up, so one share of a few hundred may be worth three seats, and no number of shares
    two. Spare shares make each share worth less, and cost nobody seats."""


def total_seats(nominal: dict[str, int], shares: dict[str, int]) -> int:
    """Return the seats of an API server, from the nominal seats of its levels, each rounded up.

    It may be a few more than the server has, never fewer.

    Args:
        nominal: Nominal seats by level.
        shares: Shares by level, of the limited levels only.

    Raises:
        ValueError: No level is in both.
    """
    everything = sum(shares.values())
    highest = [nominal[level] * everything / own for level, own in shares.items() if own and level in nominal]
    if not highest:
        raise ValueError("no priority level of the API server has both shares and nominal seats")
    return math.floor(min(highest))


_FIRST_GENERATION = 1
"""The first metadata.generation; the API server increases it with each change of the spec, and with no other."""


class FlowControlApi:
    """The flow-control objects of a cluster. Methods raise KubernetesError."""

    def __init__(self, kubernetes: Kubernetes) -> None:
        self._kubernetes = kubernetes
        self._api = client.FlowcontrolApiserverV1Api(kubernetes.api)

    def shares(self) -> dict[str, int]:
        """Return the shares of every limited priority level."""
        with self._kubernetes.explained("list priority levels"):
            levels = self._api.list_priority_level_configuration().items
        return {
            level.metadata.name: level.spec.limited.nominal_concurrency_shares
            for level in levels
            if level.spec.type == "Limited" and level.spec.limited.nominal_concurrency_shares is not None
        }

    def level_names(self) -> dict[str, str]:
        """Return the names of all priority levels by their UIDs, which the API server's answers carry."""
        with self._kubernetes.explained("list priority levels"):
            levels = self._api.list_priority_level_configuration().items
        return {level.metadata.uid: level.metadata.name for level in levels}

    def owner(self, kind: FlowControlKind, name: str) -> str | None:
        """Return the run that owns an object, "" if no run created it; None if it does not exist."""
        with self._kubernetes.explained(f"read {kind} {name}"), absent_is_none():
            labels: dict[str, str] = getattr(self._api, f"read_{kind}")(name).metadata.labels or {}
            return labels.get(RUN_LABEL, "")
        return None

    def change(self, kind: FlowControlKind, name: str, run_id: str) -> str | None:
        """Return in words what somebody else did to a run's object; None if nobody changed its spec.

        A change that was reverted counts as well.
        """
        words, found = f"{kind} {name}", None
        with self._kubernetes.explained(f"read {words}"), absent_is_none():
            found = getattr(self._api, f"read_{kind}")(name).metadata
        if found is None:
            return f"{words} is gone"
        if (found.labels or {}).get(RUN_LABEL) != run_id:
            return f"{words} is not this run's any more"
        if found.generation == _FIRST_GENERATION:
            return None
        return f"{words} was changed by {last_writer(found.managed_fields, 'f:spec') or 'somebody'}"

    def create(self, kind: FlowControlKind, manifest: dict[str, Any]) -> None:
        """Create an object."""
        with self._kubernetes.explained(f"create {kind} {manifest['metadata']['name']}"):
            getattr(self._api, f"create_{kind}")(manifest, field_manager=MANAGER)

    def delete(self, kind: FlowControlKind, name: str) -> None:
        """Delete an object, if it exists."""
        with self._kubernetes.explained(f"delete {kind} {name}"), absent_is_none():
            getattr(self._api, f"delete_{kind}")(name)


def level_names(wanted: FlowControl, shares: Shares) -> tuple[str, ...]:
    """Return the names of the priority levels that `manifests` creates."""
    return (wanted.name, _spare_name(wanted)) if shares.spare else (wanted.name,)


def manifests(
    wanted: FlowControl, shares: Shares, run_id: str, namespace: str
) -> list[tuple[FlowControlKind, dict[str, Any]]]:
    """Return the objects to create, in this order: the levels before the schema that needs one.

    Args:
        wanted: The plan's flow control.
        shares: The shares that give its seats.
        run_id: The run, as a label.
        namespace: The game-day's own, with its service accounts.
    """
    queuing = {"queues": 1, "handSize": 1, "queueLengthLimit": wanted.queue_length}
    limited = {
        "nominalConcurrencyShares": shares.own,
        "lendablePercent": 0,
        "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Queue", "queuing": queuing},
    }
    objects = [(FlowControlKind.LEVEL, _level(wanted.name, limited, run_id))]
    if shares.spare:
        # It lends all of its seats and takes no requests.
        spare = {
            "nominalConcurrencyShares": shares.spare,
            "lendablePercent": 100,
            "limitResponse": {"type": "Reject"},
        }
        objects.append((FlowControlKind.LEVEL, _level(_spare_name(wanted), spare, run_id)))
    rule = {
        "subjects": _subjects(wanted, namespace),
        "resourceRules": [
            {
                "verbs": list(wanted.verbs),
                "apiGroups": [""],
                "resources": list(wanted.resources),
                "namespaces": list(wanted.namespaces),
                "clusterScope": "*" in wanted.namespaces,
            }
        ],
    }
    schema = {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "FlowSchema",
        "metadata": {"name": wanted.name, "labels": {RUN_LABEL: run_id}},
        "spec": {
            "matchingPrecedence": wanted.precedence,
            "priorityLevelConfiguration": {"name": wanted.name},
            "distinguisherMethod": {"type": "ByUser"},
            "rules": [rule],
        },
    }
    return [*objects, (FlowControlKind.SCHEMA, schema)]


def _subjects(wanted: FlowControl, namespace: str) -> list[dict[str, Any]]:
    if wanted.accounts:
        return [
            {"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}
            for name in wanted.accounts
        ]
    return [{"kind": "Group", "group": {"name": group}} for group in wanted.groups]


def _level(name: str, limited: dict[str, Any], run_id: str) -> dict[str, Any]:
    return {
        "apiVersion": "flowcontrol.apiserver.k8s.io/v1",
        "kind": "PriorityLevelConfiguration",
        "metadata": {"name": name, "labels": {RUN_LABEL: run_id}},
        "spec": {"type": "Limited", "limited": limited},
    }


def _spare_name(wanted: FlowControl) -> str:
    return f"{wanted.name}-spare"
