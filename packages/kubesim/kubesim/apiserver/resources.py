"""The kinds that this server knows. A kind that is only stored needs one line here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Subresource:
    """A path below an object, e.g. pods/eviction; group, version and kind are those of its body."""

    name: str
    kind: str
    verbs: tuple[str, ...]
    group: str = ""
    version: str = ""


@dataclass(frozen=True)
class Resource:
    """A served resource. `generation`: a change of its spec raises metadata.generation."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    short: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    generation: bool = False
    status: bool = False
    subresources: tuple[Subresource, ...] = ()
    verbs: tuple[str, ...] = STORED_VERBS

    @cached_property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """The name in messages and of the store's collection: `jobs.batch`, `pods`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def singular(self) -> str:
        """The singular name, such as `pod`."""
        return self.kind.lower()

    @cached_property
    def prefix(self) -> bytes:
        """The beginning of an object of this kind in JSON; the stored rest follows."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def is_stored(self) -> bool:
        """False for reviews, which are answered and not kept."""
        return "get" in self.verbs

    def subresource(self, name: str) -> Subresource | None:
        """Return the subresource of that name, which may be the status."""
        for sub in self.all_subresources:
            if sub.name == name:
                return sub
        return None

    @cached_property
    def all_subresources(self) -> tuple[Subresource, ...]:
        """Return every subresource in discovery's order."""
        status = (Subresource("status", self.kind, ("get", "patch", "update")),) if self.status else ()
        return self.subresources + status


_ALL = ("all",)
_CREATE = ("create",)
_RBAC = "rbac.authorization.k8s.io"
_AUTHZ = "authorization.k8s.io"
_AUTHN = "authentication.k8s.io"

RESOURCES: tuple[Resource, ...] = (
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Resource("", "v1", "events", "Event", short=("ev",)),
    Resource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short=("ns",),
        status=True,
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Resource("", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True),
    Resource(
        "",
        "v1",
        "pods",
        "Pod",
        short=("po",),
        categories=_ALL,
        generation=True,
        status=True,
        subresources=(
            Subresource("binding", "Binding", _CREATE),
            Subresource("eviction", "Eviction", _CREATE, "policy", "v1"),
            Subresource("log", "Pod", ("get",)),
        ),
    ),
    Resource("", "v1", "secrets", "Secret"),
    Resource(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short=("sa",),
        subresources=(Subresource("token", "TokenRequest", _CREATE, _AUTHN, "v1"),),
    ),
    Resource("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), categories=_ALL, generation=True, status=True),
    Resource(_AUTHN, "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHZ, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHZ, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False, verbs=_CREATE),
    Resource("batch", "v1", "jobs", "Job", categories=_ALL, generation=True, status=True),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), generation=True, status=True
    ),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",), generation=True
    ),
)
UNSERVED: tuple[Resource, ...] = (
    Resource("", "v1", "endpoints", "Endpoints", short=("ep",), verbs=()),
    Resource("", "v1", "limitranges", "LimitRange", short=("limits",), verbs=()),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), verbs=()),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), verbs=()),
    Resource("", "v1", "podtemplates", "PodTemplate", verbs=()),
    Resource("", "v1", "replicationcontrollers", "ReplicationController", short=("rc",), verbs=()),
    Resource("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), verbs=()),
    Resource("", "v1", "services", "Service", short=("svc",), verbs=()),
    Resource("apps", "v1", "controllerrevisions", "ControllerRevision", verbs=()),
    Resource("apps", "v1", "deployments", "Deployment", short=("deploy",), verbs=()),
    Resource("apps", "v1", "replicasets", "ReplicaSet", short=("rs",), verbs=()),
    Resource("apps", "v1", "statefulsets", "StatefulSet", short=("sts",), verbs=()),
    Resource(_AUTHN, "v1", "tokenreviews", "TokenReview", namespaced=False, verbs=()),
    Resource(_AUTHZ, "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs=()),
    Resource("batch", "v1", "cronjobs", "CronJob", short=("cj",), verbs=()),
)
"""Kinds that only a real server has, in API groups that are served: discovery shows them, requests are refused."""

BY_PATH: dict[tuple[str, str, str], Resource] = {(r.group, r.version, r.plural): r for r in RESOURCES}
GROUPS = frozenset(resource.group for resource in RESOURCES)
GROUP_VERSIONS: tuple[tuple[str, str], ...] = tuple(sorted({(r.group, r.version) for r in RESOURCES}))


def resource_named(plural: str, group: str = "") -> Resource:
    """Return the resource of that plural. Raises KeyError if it is not served."""
    return BY_PATH[(group, "v1", plural)]


BY_NAME: dict[str, Resource] = {resource.qualified: resource for resource in RESOURCES if resource.is_stored}
"""The kinds that are stored, by the name of their collection."""
