"""Recognise installed detectors by their profiles' marks. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gameday.detectors.models import DetectorProfile, Mark
from gameday_prove.values import Installed, Workload


@dataclass(frozen=True)
class Found:
    """The cluster's workloads and one node, as the look has them."""

    workloads: tuple[Workload, ...]
    labels: Mapping[str, str]
    """The node's labels."""
    conditions: frozenset[str]
    """Types of the node's conditions."""
    on_node: Mapping[tuple[str, str], str]
    """The state of each pod on the node, `ready` or why not, by the namespace and the name of its workload."""
    config: Callable[[Workload], str | None]
    """A function that returns the text of a workload's ConfigMaps; None if it cannot be read."""
    pods_known: bool = True
    """False if the node's pods could not be listed."""


def recognised(profiles: Sequence[DetectorProfile], found: Found, named: Sequence[str] = ()) -> list[Installed]:
    """Return the installed detectors, by name.

    Args:
        profiles: All profiles.
        found: The cluster.
        named: Detectors that are there by the user's own word.
    """
    here: dict[str, Installed] = {}
    for profile in profiles:
        if profile.recognize and (by := _found_by(profile.recognize.marks[0], found)):
            blind = tuple(dict.fromkeys(why for mark in profile.recognize.marks for why in _blind(mark, found)))
            here[profile.name] = Installed(detector=profile.name, title=profile.title, found_by=by, blind=blind)
        elif profile.name in named:
            here[profile.name] = Installed(detector=profile.name, title=profile.title)
    other = {profile.name: profile.recognize.unless for profile in profiles if profile.recognize}
    return [one for name, one in sorted(here.items()) if other.get(name) not in here]


def holds_image(images: Sequence[str], wanted: str) -> bool:
    """Return True if an image's name, without registry, tag and digest, ends with these parts."""
    for image in images:
        path = image.partition("@")[0]
        head, colon, tag = path.rpartition(":")
        name = head if colon and "/" not in tag else path
        if name == wanted or name.endswith(f"/{wanted}"):
            return True
    return False


def _found_by(mark: Mark, found: Found) -> str:
    """Return how the mark shows itself, in words; empty if it does not."""
    if mark.node_label or mark.node_condition:
        label = not mark.node_label or mark.node_label in found.labels
        condition = not mark.node_condition or mark.node_condition in found.conditions
        shown = [f"label {mark.node_label}"] if mark.node_label else []
        shown += [f"condition {mark.node_condition}"] if mark.node_condition else []
        return " and ".join(shown) + " of the node" if label and condition else ""
    return ", ".join(map(str, _workloads(mark, found)))


def _workloads(mark: Mark, found: Found) -> list[Workload]:
    return [
        one
        for one in found.workloads
        if (not mark.image or holds_image(one.images, mark.image))
        and one.name.startswith(mark.workload)
        and mark.says.lower() in one.words.lower()
    ]


def _blind(mark: Mark, found: Found) -> Iterator[str]:
    """Yield the reasons why this part sees nothing of the node."""
    if mark.node_label or mark.node_condition:
        return
    workloads = _workloads(mark, found)
    if not workloads:
        yield f"the cluster has no {mark.workload or mark.image}, which it needs"
        return
    if mark.on_node and found.pods_known:
        states = [state for one in workloads if (state := found.on_node.get((one.namespace, one.name)))]
        if not states:
            yield f"{workloads[0]} has no pod on this node{_selector(workloads[0])}"
        elif "ready" not in states:
            yield f"the pod of {workloads[0]} on this node is not ready: {states[0]}"
    elif not any(one.ready for one in workloads):
        yield f"{workloads[0]} has no ready pod"
    if mark.config:
        texts = [text for one in workloads if (text := found.config(one)) is not None]
        if texts and not any(mark.config.replace("\\", "") in text.replace("\\", "") for text in texts):
            yield f"no ConfigMap of {workloads[0]} holds {mark.config!r}: it has no rule for these lines"


def _selector(workload: Workload) -> str:
    chosen = ", ".join(f"{key}={value}" for key, value in sorted(workload.node_selector.items()))
    return f" (its nodeSelector is {chosen})" if chosen else ""
