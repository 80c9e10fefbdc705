"""The cluster that a plan wants for its rehearsal: the lab's API servers, and changes of its programs' settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from gameday.documents.fields import Bound, DocumentModel, conflict

TOPOLOGY_SCHEDULER = "topology-scheduler"
"""The `schedulerName` of the lab's topology-aware scheduler."""


class LabComponent(StrEnum):
    """A program of the lab's control plane."""

    ETCD = "etcd"
    API_SERVER = "kube-apiserver"
    CONTROLLER_MANAGER = "kube-controller-manager"
    SCHEDULER = "kube-scheduler"
    TOPOLOGY_SCHEDULER = "kube-scheduler-topology"


class Balance(StrEnum):
    """The load balancer's rule for choosing a server for a new connection, in HAProxy's terms."""

    ROUND_ROBIN = "roundrobin"
    LEAST_CONNECTIONS = "leastconn"


class DraXidEffect(StrEnum):
    """The effect of the taint that the lab's DRA driver puts on the device of an Xid."""

    NO_SCHEDULE = "NoSchedule"
    NO_EXECUTE = "NoExecute"


_FLAG = re.compile(r"[a-z0-9][a-z0-9-]{0,99}")
# Plans are not trusted: a flag may change how a program works, but not which files it reads, where it listens or what
# it starts.
_OF_FILES_AND_ADDRESSES = re.compile(
    r"(?:^|-)(?:(?:ca|cert|key)?file|files|dir|path|kubeconfig|config|urls?|outputs|address|addresses|port|certificate"
    r"|servers|overrides|proxy|srv|master)$"
)
_NO_FILES = ("runtime-config",)
"""Flags that are named as if they took a file but take values."""
# Other flags that the lab, its access rights or its readiness depend on.
_THE_LABS_OWN: Mapping[LabComponent, tuple[str, ...]] = {
    LabComponent.ETCD: (
        "name",
        "initial-cluster",
        "client-cert-auth",
        "peer-client-cert-auth",
    ),
    LabComponent.API_SERVER: (
        "anonymous-auth",
        "authorization-mode",
        "allow-privileged",
        "endpoint-reconciler-type",
        "service-account-issuer",
        "service-cluster-ip-range",
        "kubelet-certificate-authority",
        "kubelet-client-certificate",
        "kubelet-client-key",
        "kubelet-preferred-address-types",
        "requestheader-allowed-names",
        "requestheader-username-headers",
        "requestheader-group-headers",
        "requestheader-extra-headers-prefix",
        "audit-log-maxsize",
        "audit-log-maxbackup",
    ),
    LabComponent.CONTROLLER_MANAGER: (
        "authorization-always-allow-paths",
        "use-service-account-credentials",
        "leader-elect",
        "kube-api-qps",
        "kube-api-burst",
    ),
    LabComponent.SCHEDULER: (
        "authorization-always-allow-paths",
        "leader-elect",
        "kube-api-qps",
        "kube-api-burst",
    ),
    LabComponent.TOPOLOGY_SCHEDULER: (
        "authorization-always-allow-paths",
        "leader-elect",
        "kube-api-qps",
        "kube-api-burst",
    ),
}


def why_refused(component: LabComponent, flag: str) -> str:
    """Return why the lab takes no such flag of the component; empty if it takes it."""
    if not _FLAG.fullmatch(flag):
        return "a flag is written without its dashes: lower-case letters, digits and `-`, like goaway-chance"
    if flag in _THE_LABS_OWN[component]:
        own = {"kube-api-qps", "kube-api-burst"}
        instead = ": set controller_manager_qps or scheduler_qps" if flag in own else ""
        return f"--{flag} of {component} is the lab's own{instead or ', which would not work with another value'}"
    if flag not in _NO_FILES and _OF_FILES_AND_ADDRESSES.search(flag):
        return f"--{flag} of {component} is about files or addresses, which are the lab's own"
    return ""


def _without_own_flags(
    flags: dict[LabComponent, dict[str, str]],
) -> dict[LabComponent, dict[str, str]]:
    for component, values in flags.items():
        for flag in values:
            if why := why_refused(component, flag):
                raise conflict((component.value, flag), why)
    return flags


def _flag_text(value: object) -> object:
    """Return a YAML scalar as the text of a flag's value: `true`, `0.02`."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


FlagValue = Annotated[
    str,
    BeforeValidator(_flag_text),
    Field(max_length=1024, pattern=r"^[^\x00-\x1f]*$"),
    WithJsonSchema({"type": ["string", "number", "boolean"], "maxLength": 1024}),
]
Flags = Annotated[dict[LabComponent, dict[str, FlagValue]], AfterValidator(_without_own_flags)]
"""Flags by component and name, the name without dashes."""

_VARIABLE = re.compile(r"GO[A-Z]{1,30}|KUBE_FEATURE_\w{1,100}", re.ASCII)
"""The variables of Go's runtime (GOGC, GOMEMLIMIT, GOMAXPROCS, GODEBUG) and client-go's feature gates.

Others could name files or libraries, or shadow a flag as those of etcd do."""


def _known_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise PydanticCustomError(
            "variable", "the lab takes variables of Go's runtime, like GOGC and GOMEMLIMIT, and KUBE_FEATURE_NAME"
        )
    return name


VariableName = Annotated[str, AfterValidator(_known_variable)]
Environment = Annotated[
    dict[LabComponent, dict[VariableName, FlagValue]],
    Field(json_schema_extra={"examples": [{"kube-apiserver": {"GOGC": "50"}}]}),
]
"""Environment variables by component and name."""

ApiServers = Annotated[int, Field(ge=1, le=5)]
# rest.Config.QPS is a float32; a hundred thousand a second is more than any server answers.
ClientQps = Annotated[int, Field(ge=1, le=100_000)]


def _with_its_unit(value: object, handler: ValidatorFunctionWrapHandler) -> ByteSize:
    try:
        size: ByteSize = handler(value)
    except ValidationError:
        raise PydanticCustomError("memory", "memory is more than 0 and written with its unit, like 1GiB") from None
    return size


MemoryLimit = Annotated[ByteSize, Field(gt=0), WrapValidator(_with_its_unit)]


ApiServerRelease = Annotated[
    str, Field(pattern=r"^1\.[1-9][0-9]$", json_schema_extra={"examples": ["1.32"]}, max_length=4)
]

SETTABLE_AS_IT_RUNS = (
    "api_server_memory",
    "api_server_release",
    "controller_manager_qps",
    "environment",
    "flags",
    "scheduler_qps",
    "topology",
)
"""The keys of `rehearsal` that a running lab can take: by a restart of some of its programs."""


class RehearsalSettings(DocumentModel):
    """The cluster that `gameday rehearse` starts for the plan; an option of the command line wins over a key here."""

    cluster: Literal["embedded", "lab"] | None = None
    """Control plane of the rehearsal: `embedded`, the stand-in, or `lab`, Kubernetes' own programs (docs/lab.md). All
    other keys need `lab`."""
    training: bool = True
    """If true, training jobs hold GPUs of the nodes; without them a plan's own pods find all GPUs free."""
    api_servers: ApiServers | None = None
    """Number of kube-apiservers; several are behind a load balancer."""
    held_api_servers: int | None = Field(default=None, ge=1, le=4)
    """Number of API servers, the last ones, that do not run until `settings.start_held_servers` lets them start."""
    balance: Balance | None = None
    """The load balancer's choice of a server for a new connection."""
    flags: Flags = Field(default_factory=dict)
    """Flags of the lab's programs, by component and by name without dashes."""
    environment: Environment = Field(default_factory=dict)
    """Environment variables of the lab's programs, by component: those of Go's runtime, such as GOGC."""
    controller_manager_qps: ClientQps | None = None
    """Requests per second that each of kube-controller-manager's clients may send; its own default is 20."""
    scheduler_qps: ClientQps | None = None
    """Requests per second that kube-scheduler's client may send; its own default is 50."""
    api_server_memory: MemoryLimit | None = None
    """Resident memory, such as `1GiB`, above which an API server is killed, as the kernel kills a container."""
    api_server_release: ApiServerRelease | None = None
    """Minor release of Kubernetes, such as `"1.32"`, of the API servers; `make lab-release` builds it. Scheduler and
    controller-manager stay the lab's own and start before, with an API server of their release."""
    dra: bool = False
    """If true, a driver for dynamic resource allocation publishes the nodes' GPUs as ResourceSlices beside the device
    plugin, and the training jobs hold theirs by ResourceClaims."""
    dra_xid_effect: DraXidEffect = DraXidEffect.NO_SCHEDULE
    """Effect of the taint that the driver puts on the device of an Xid. NVIDIA's driver writes NoSchedule; NoExecute is
    what an administrator who escalates makes of it, and evicts the pods that have the device."""

    topology: bool = False
    """If true, a topology-aware scheduler (`make lab-topology` builds it) runs beside kube-scheduler, and on each node
    an updater, which keeps the free GPUs by NUMA zone in a NodeResourceTopology object. An arm may write false: its
    game-days have neither."""
    topology_interval: Bound = timedelta(seconds=60)
    """Longest time between two writes of such an object, which the updater also writes at each allocation of a GPU;
    the default is that of NFD (`-sleep-interval`)."""

    @property
    def held_servers(self) -> tuple[str, ...]:
        """Names of the API servers that do not run at first."""
        servers = self.api_servers or 1
        return tuple(
            f"{LabComponent.API_SERVER}-{n}" for n in range(servers - (self.held_api_servers or 0) + 1, servers + 1)
        )

    @model_validator(mode="after")
    def _one_server_runs(self) -> Self:
        if self.held_api_servers and self.held_api_servers >= (self.api_servers or 1):
            raise conflict(
                ("held_api_servers",), "the first server is needed for the start: hold fewer than api_servers"
            )
        return self

    @model_validator(mode="after")
    def _only_a_lab_has_settings(self) -> Self:
        # Compared by value, because a plan that is read back from JSON writes every key.
        fields = type(self).model_fields
        set_here = {key for key, value in self if value != fields[key].get_default(call_default_factory=True)}
        for key in sorted(set_here - {"cluster", "training"}):
            if self.cluster != "lab":
                raise conflict((key,), "only the lab has this setting: write `cluster: lab` beside it")
        if self.dra and self.api_server_release:
            raise conflict(("api_server_release",), "the lab's DRA driver needs its own API servers: leave out `dra`")
        if "dra_xid_effect" in set_here and not self.dra:
            raise conflict(("dra_xid_effect",), "only a DRA driver taints devices: write `dra: true` beside it")
        return self
