"""The repair chain: the hops of a cluster that repairs a node by itself, with their bounds and signs.

Kubernetes shows some hops of every cluster: the quarantine, the work that has left, a new boot, a new node, Ready, and
the end of the quarantine. A *sign* shows a hop that Kubernetes does not show by itself. Signs usually come from the
profile of the detector that watches the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, model_validator

from gameday.documents.fields import (
    Bound,
    ConditionStatus,
    ConditionType,
    DocumentModel,
    LabelKey,
    LabelValue,
    Reason,
    conflict,
)
from gameday.values.results import RepairHop, RepairKind

# Kubernetes' own limits: a group is a DNS subdomain (253), a version and a plural are DNS labels (63).
ApiVersion = Annotated[str, Field(pattern=r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?v[a-z0-9]+$", max_length=317)]
Plural = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)]
FieldPath = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9]*(\.[A-Za-z][A-Za-z0-9]*)*$", max_length=253)]
Actor = Annotated[str, Field(min_length=1, max_length=128)]


class LabelSign(DocumentModel):
    """A label on the node."""

    key: LabelKey
    """Key of the label."""
    values: tuple[LabelValue, ...] = ()
    """Values that are a sign; empty: any value that the node did not have before the fault."""


class AnnotationSign(DocumentModel):
    """An annotation on the node that it did not have, or not with this value, before the fault."""

    key: LabelKey
    """Key of the annotation."""


class TaintSign(DocumentModel):
    """A taint on the node, or its end."""

    key: LabelKey
    """Key of the taint."""
    gone: StrictBool = False
    """If true, the sign is the end of the taint, which must have been on the node after the fault."""


class ConditionSign(DocumentModel):
    """A condition of the node."""

    type: ConditionType
    """Type of the condition."""
    status: ConditionStatus
    """Status that is the sign."""
    reason: Reason | None = None
    """Reason of the condition; null: any."""


class EventSign(DocumentModel):
    """A Kubernetes Event about the node, written since the fault."""

    reason: Reason
    """Reason of the Event, such as `NodeRepairBegun`."""
    component: Actor | None = None
    """Component that reports the Event; null: any."""


class ResourceCondition(DocumentModel):
    """A condition in a custom resource's `status.conditions`."""

    type: ConditionType
    """Type of the condition."""
    status: ConditionStatus
    """Status that is the sign."""


class ResourceSign(DocumentModel):
    """A custom resource about the node, such as NVSentinel's RebootNode, created or changed since the fault."""

    api_version: ApiVersion
    """Group and version of the resource, such as `janitor.dgxc.nvidia.com/v1alpha1`."""
    plural: Plural
    """Plural name of the resource in the API's paths, such as `rebootnodes`."""
    node: FieldPath
    """Dotted path to the node's name in the resource, such as `spec.nodeName`."""
    condition: ResourceCondition | None = None
    """Condition that the resource must have; null: its existence is the sign."""
    exists: Literal[True] = True
    """The resource must exist. Its deletion is no sign."""


class Sign(DocumentModel):
    """A mark in the cluster that shows a hop: exactly one of label, annotation, taint and the others."""

    label: LabelSign | None = None
    """A label on the node."""
    annotation: AnnotationSign | None = None
    """An annotation on the node."""
    taint: TaintSign | None = None
    """A taint on the node, or its end."""
    cordoned: StrictBool | None = None
    """True: the node is cordoned. False: it no longer is."""
    condition: ConditionSign | None = None
    """A condition of the node."""
    event: EventSign | None = None
    """A Kubernetes Event about the node."""
    resource: ResourceSign | None = None
    """A custom resource about the node."""
    new_boot: Literal[True] | None = None
    """The node has another boot id than before the fault."""
    new_node: Literal[True] | None = None
    """Another node of the same pool has taken the target's place."""
    kind: RepairKind | None = None
    """Kind of repair that the sign shows; only at the hop `repaired`, which needs it."""
    by: Actor | None = None
    """The actor's name, if the cluster does not record it; null: as the cluster records it."""

    @property
    def source(self) -> str:
        """The key that is given: where to look for the sign."""
        return self._sources()[0]

    @property
    def implied_kind(self) -> RepairKind | None:
        """The kind of repair: the one written, or a reboot for a new boot and a replacement for a new node."""
        if self.kind:
            return self.kind
        return RepairKind.REPLACEMENT if self.new_node else RepairKind.REBOOT if self.new_boot else None

    def _sources(self) -> list[str]:
        return [
            name for name in type(self).model_fields if name not in ("kind", "by") and getattr(self, name) is not None
        ]

    @model_validator(mode="after")
    def _is_exactly_one(self) -> Sign:
        found = self._sources()
        if len(found) != 1:
            known = ", ".join(name for name in type(self).model_fields if name not in ("kind", "by"))
            what = f"a sign is one thing, not {' and '.join(found)}: keep one of" if found else "a sign needs one of"
            raise conflict(tuple(found[-1:]), f"{what} {known}")
        return self


class ExpectedHop(DocumentModel):
    """A hop of the repair chain that must come in time."""

    within: Bound
    """Longest time from the previous hop; for the chain's first hop, from the fault going in."""
    signs: tuple[Sign, ...] = ()
    """Marks in the cluster that show this hop, in addition to what Kubernetes itself shows; the first one that appears
    counts. Empty: the profile's, if the plan names a detector."""


class ExpectedRepair(ExpectedHop):
    """The hop *repaired*."""

    kinds: tuple[RepairKind, ...] = ()
    """Kinds of repair that count; empty: every kind."""


class RepairChain(DocumentModel):
    """The hops that the cluster must take by itself, in this order; null: not expected of this cluster."""

    quarantined: ExpectedHop | None = None
    """The node is out of service: an expected taint or the cordon is on it."""
    work_moved: ExpectedHop | None = None
    """None of the GPU pods that ran before the fault is left on the node."""
    repair_begun: ExpectedHop | None = None
    """The repair begins. Only signs show it before a new boot or a new node does."""
    repaired: ExpectedRepair | None = None
    """The repair is done: a new boot id, a new node in the same place, or a sign with its kind."""
    ready: ExpectedHop | None = None
    """The node is Ready, and offers as many GPUs as before."""
    validated: ExpectedHop | None = None
    """The cluster's own test of the node has passed. Only signs show it."""
    returned: ExpectedHop | None = None
    """The node takes work: it has no new taint and is not cordoned."""

    def expected(self) -> list[tuple[RepairHop, ExpectedHop]]:
        """Return the hops that the plan expects, in their order."""
        return [(hop, found) for hop in RepairHop if (found := self.of(hop)) is not None]

    def of(self, hop: RepairHop) -> ExpectedHop | None:
        """Return the expectation of one hop."""
        found: ExpectedHop | None = getattr(self, key_of(hop))
        return found

    @property
    def longest(self) -> timedelta:
        """The longest time from the fault going in to the chain's end."""
        return sum((hop.within for _, hop in self.expected()), timedelta())

    def signs(self) -> Iterator[Sign]:
        """Yield every sign of every hop."""
        for _, hop in self.expected():
            yield from hop.signs

    def without_signs(self) -> list[RepairHop]:
        """Return the expected hops that only a sign could show but that have none."""
        shown_by_signs = (RepairHop.REPAIR_BEGUN, RepairHop.VALIDATED)
        return [hop for hop, expected in self.expected() if hop in shown_by_signs and not expected.signs]

    def completed_by(self, other: RepairChain) -> RepairChain:
        """Return this chain, completed by another one; keys that this one writes win, even those with null.

        Args:
            other: The chain of the detector's profile.
        """
        return RepairChain(**{key: value for key, value in self._merged(other)})

    def _merged(self, other: RepairChain) -> Iterator[tuple[str, Any]]:
        for key in type(self).model_fields:
            own, theirs = getattr(self, key), getattr(other, key)
            if own is not None and theirs is not None:
                yield key, theirs.model_copy(update={name: getattr(own, name) for name in own.model_fields_set})
            elif key in self.model_fields_set or theirs is not None:
                yield key, own if key in self.model_fields_set else theirs

    @model_validator(mode="after")
    def _kinds_belong_to_repaired(self) -> RepairChain:
        for hop, expected in self.expected():
            for index, sign in enumerate(expected.signs):
                at = (key_of(hop), "signs", index)
                if hop is RepairHop.REPAIRED and sign.implied_kind is None:
                    raise conflict(at, f"a sign of this hop needs its kind: {', '.join(RepairKind)}")
                if hop is not RepairHop.REPAIRED and sign.kind:
                    raise conflict((*at, "kind"), "only a sign of the hop `repaired` has a kind")
        return self


def key_of(hop: RepairHop) -> str:
    """Return the key of a hop in a plan's `recover.hops`."""
    return hop.value.replace(" ", "_")
