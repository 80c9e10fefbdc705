"""The state of a cluster as `gameday prove` found it, and the lines that it plays."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Value(BaseModel):
    """Base of the values here: frozen and closed."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Posture(StrEnum):
    """The reach of a proof: what the installed detectors may be made to do."""

    QUIET = "quiet"
    """Lines that nobody should act on, and one that the detectors answer without taking the node out of service."""
    QUARANTINE = "quarantine"
    """Xid 79 and 48 after those: the node may be tainted or cordoned."""
    REPAIR = "repair"
    """The same, and the wait until the cluster's own repair has returned the node."""


class Workload(Value):
    """A DaemonSet or Deployment."""

    kind: str
    namespace: str
    name: str
    images: tuple[str, ...]
    words: str = ""
    """Commands, arguments and plain environment of its containers."""
    config_maps: tuple[str, ...] = ()
    """Names of the ConfigMaps that it mounts or reads."""
    ready: int = 0
    """Ready pods."""
    node_selector: dict[str, str] = {}

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


class Installed(Value):
    """An installed detector."""

    detector: str
    """Name of its profile."""
    title: str
    found_by: str = ""
    """The mark by which it was recognised, in words; empty if only the user says that it is there."""
    blind: tuple[str, ...] = ()
    """Reasons why it cannot see this node's faults as things are."""

    @property
    def named(self) -> bool:
        """True if only the user says that it is there."""
        return not self.found_by


class Unseen(Value):
    """A part of the cluster that could not be looked at."""

    what: str
    why: str
    verb: str = ""
    """The right that would allow it, with `resource` and `group`; empty if it is no matter of rights."""
    resource: str = ""
    group: str = ""


class LoadedRule(Value):
    """An alerting rule that is about GPUs."""

    name: str
    query: str
    hold_s: float = 0.0
    """The rule's `for`, in seconds."""
    never: str = ""
    """The reason why it cannot fire as things are; empty if it can."""


class Monitoring(Value):
    """Prometheus or Alertmanager, reached through the API server's service proxy."""

    path: str
    """The proxy's path of the server."""
    service: str
    rules: tuple[LoadedRule, ...] = ()
    """Alerting rules about GPUs."""
    all_rules: int = 0
    firing: tuple[str, ...] = ()
    """Alerts of severity critical that fire before anything is played."""


class NodeFound(Value):
    """A GPU node."""

    name: str
    gpus: str
    """GPUs that its kubelet offers, in words."""
    unfit: str = ""
    """The reason why nothing is played there; empty if it is fit."""
    virtual: bool = False


class Surroundings(Value):
    """Everything that the look found."""

    server: str
    version: str
    uid: str = ""
    """UID of the namespace kube-system, which is unique to the cluster; empty if it may not be read."""
    nodes: tuple[NodeFound, ...]
    node: str
    """The node to play on."""
    image: str
    """An image with a shell that the node already has; empty if it has no known one."""
    detectors: tuple[Installed, ...]
    prometheus: Monitoring | None = None
    alertmanager: str = ""
    """Service of the Alertmanager that answers; empty if none does."""
    work: tuple[str, ...] = ()
    """Pods on the node that belong to no DaemonSet: a drain would move them."""
    unseen: tuple[Unseen, ...] = ()
    requests: int = Field(ge=0, default=0)
    bystanders: int = 0
    """Other fit GPU nodes."""


class Line(Value):
    """A kernel-log line that is played."""

    number: int
    """Its place, from 1."""
    xid: int
    name: str
    """The catalogue's name of the code."""
    why: str
    """The reason why it is played."""
