"""The kinds this server knows. Adding a kind that is only stored means adding one line here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

STORED_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


# Go packages of the real server's internal types, where they are not called after their group.
_PACKAGES = {"": "core", "events.k8s.io": "core", "rbac.authorization.k8s.io": "rbac"}


def go_type(group: str, kind: str) -> str:
    """`batch.Job`: the real server's internal type of a kind."""
    return f"{_PACKAGES.get(group) or group.partition('.')[0]}.{kind}"


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
    """A served resource.

    `bucket` names where objects live; core and events.k8s.io events share one.
    `generation` says that spec changes bump metadata.generation.
    """

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
    bucket: str = ""

    @cached_property
    def api_version(self) -> str:
        """The apiVersion of its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @cached_property
    def qualified(self) -> str:
        """`jobs.batch`, `pods`: how messages name it."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @cached_property
    def store_key(self) -> str:
        """The store's collection for it."""
        return self.bucket or self.qualified

    @cached_property
    def singular(self) -> str:
        """`pod`."""
        return self.kind.lower()

    @cached_property
    def go_type(self) -> str:
        """`core.Pod`: the real server's internal type, which some of its messages name."""
        return go_type(self.group, self.kind)

    @cached_property
    def prefix(self) -> bytes:
        """JSON that opens an object of this kind; the stored rest follows it."""
        return f'{{"kind":"{self.kind}","apiVersion":"{self.api_version}",'.encode()

    @cached_property
    def is_stored(self) -> bool:
        """False for reviews, which are answered and not kept."""
        return "get" in self.verbs

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, the status included."""
        for sub in self.all_subresources:
            if sub.name == name:
                return sub
        return None

    @cached_property
    def all_subresources(self) -> tuple[Subresource, ...]:
        """Every subresource in discovery's order."""
        status = (Subresource("status", self.kind, ("get", "patch", "update")),) if self.status else ()
        return self.subresources + status


_ALL = ("all",)
_CREATE = ("create",)
_SCALE = Subresource("scale", "Scale", ("get", "patch", "update"), "autoscaling", "v1")
_RBAC = "rbac.authorization.k8s.io"
_AUTHZ = "authorization.k8s.io"
_AUTHN = "authentication.k8s.io"
_DRA = "resource.k8s.io"

RESOURCES: tuple[Resource, ...] = (
    Resource("", "v1", "bindings", "Binding", verbs=_CREATE),
    Resource("", "v1", "configmaps", "ConfigMap", short=("cm",)),
    Resource("", "v1", "endpoints", "Endpoints", short=("ep",)),
    Resource("", "v1", "events", "Event", short=("ev",), bucket="events"),
    Resource("", "v1", "limitranges", "LimitRange", short=("limits",)),
    Resource(
        "",
        "v1",
        "namespaces",
        "Namespace",
        namespaced=False,
        short=("ns",),
        status=True,
        subresources=(Subresource("finalize", "Namespace", ("update",)),),
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
    ),
    Resource("", "v1", "nodes", "Node", namespaced=False, short=("no",), status=True),
    Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", short=("pvc",), status=True),
    Resource("", "v1", "persistentvolumes", "PersistentVolume", namespaced=False, short=("pv",), status=True),
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
    Resource("", "v1", "podtemplates", "PodTemplate", generation=True),
    Resource("", "v1", "resourcequotas", "ResourceQuota", short=("quota",), status=True),
    Resource("", "v1", "secrets", "Secret"),
    Resource(
        "",
        "v1",
        "serviceaccounts",
        "ServiceAccount",
        short=("sa",),
        subresources=(Subresource("token", "TokenRequest", _CREATE, _AUTHN, "v1"),),
    ),
    Resource("", "v1", "services", "Service", short=("svc",), categories=_ALL, status=True),
    Resource("apps", "v1", "controllerrevisions", "ControllerRevision"),
    Resource("apps", "v1", "daemonsets", "DaemonSet", short=("ds",), categories=_ALL, generation=True, status=True),
    Resource(
        "apps",
        "v1",
        "deployments",
        "Deployment",
        short=("deploy",),
        categories=_ALL,
        generation=True,
        status=True,
        subresources=(_SCALE,),
    ),
    Resource(
        "apps",
        "v1",
        "replicasets",
        "ReplicaSet",
        short=("rs",),
        categories=_ALL,
        generation=True,
        status=True,
        subresources=(_SCALE,),
    ),
    Resource(
        "apps",
        "v1",
        "statefulsets",
        "StatefulSet",
        short=("sts",),
        categories=_ALL,
        generation=True,
        status=True,
        subresources=(_SCALE,),
    ),
    Resource(_AUTHN, "v1", "selfsubjectreviews", "SelfSubjectReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHN, "v1", "tokenreviews", "TokenReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHZ, "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHZ, "v1", "selfsubjectrulesreviews", "SelfSubjectRulesReview", namespaced=False, verbs=_CREATE),
    Resource(_AUTHZ, "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False, verbs=_CREATE),
    Resource("batch", "v1", "cronjobs", "CronJob", short=("cj",), categories=_ALL, generation=True, status=True),
    Resource("batch", "v1", "jobs", "Job", categories=_ALL, generation=True, status=True),
    Resource("coordination.k8s.io", "v1", "leases", "Lease"),
    Resource("discovery.k8s.io", "v1", "endpointslices", "EndpointSlice", generation=True),
    Resource("events.k8s.io", "v1", "events", "Event", short=("ev",), bucket="events"),
    Resource(
        "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", short=("pdb",), generation=True, status=True
    ),
    Resource(_RBAC, "v1", "clusterrolebindings", "ClusterRoleBinding", namespaced=False),
    Resource(_RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False),
    Resource(_RBAC, "v1", "rolebindings", "RoleBinding"),
    Resource(_RBAC, "v1", "roles", "Role"),
    Resource(_DRA, "v1", "deviceclasses", "DeviceClass", namespaced=False, generation=True),
    Resource(_DRA, "v1", "resourceclaims", "ResourceClaim", status=True),
    Resource(_DRA, "v1", "resourceclaimtemplates", "ResourceClaimTemplate"),
    Resource(_DRA, "v1", "resourceslices", "ResourceSlice", namespaced=False, generation=True),
    Resource(
        "scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", namespaced=False, short=("pc",), generation=True
    ),
    Resource("storage.k8s.io", "v1", "csinodes", "CSINode", namespaced=False),
    Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False, short=("sc",)),
)

BY_PATH: dict[tuple[str, str, str], Resource] = {(r.group, r.version, r.plural): r for r in RESOURCES}
GROUPS = frozenset(resource.group for resource in RESOURCES)
GROUP_VERSIONS: tuple[tuple[str, str], ...] = tuple(sorted({(r.group, r.version) for r in RESOURCES}))


def resource_named(plural: str, group: str = "") -> Resource:
    """The resource of that plural; KeyError when it is not served."""
    return BY_PATH[(group, "v1", plural)]


# One per bucket: the resource in whose form objects are kept.
CANONICAL: dict[str, Resource] = {}
for _resource in RESOURCES:
    if _resource.is_stored:
        CANONICAL.setdefault(_resource.store_key, _resource)
