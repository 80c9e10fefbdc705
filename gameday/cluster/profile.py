"""The cluster profile: a cluster's servers, the credentials for them, and the names of its labels.

One profile describes one cluster, so that plans need not. It is read from a YAML file, or from a block of a Prefect
server, and from the environment (`GAMEDAY_…`, nested keys joined by `__`: `GAMEDAY_PROMETHEUS__URL`); the environment
wins. A file only refers to credentials (a file, an environment variable). A block holds them in secret fields, which
show as `**********` wherever a profile is printed, logged or kept.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import date, datetime, time, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal
from zoneinfo import ZoneInfo

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from gameday.documents.fields import Bound, LabelKey, LabelValue
from gameday.documents.read import decode, read
from gameday.documents.source import parse
from gameday.errors import DocumentError, ProfileError
from gameday.plan.limits import Approval, Guardrails, Limits, TimeZone
from gameday.values.nodes import NodeRole
from gameday.values.pricing import OutageTerms

KERNEL_LOG_SELECTOR = '{k8s_namespace_name="dmesg-logging", k8s_daemonset_name="dmesg"}'
"""The streams of deploy/dmesg-shipper and of Konduktor's stack (docs/sources.md, Konduktor). Anybody may give a
DaemonSet this name in another namespace."""
PLAIN_URL = r"^https?://[^\s@?#]+$"
"""A URL without user, password and query, which are secrets or lead elsewhere."""
_ENV_PREFIX = "GAMEDAY_"
_ENV_DELIMITER = "__"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def _can_be_asked(url: str) -> bool:
    """Return True if the HTTP client takes the URL: its host can be a name, and its port is a port."""
    import httpx  # noqa: PLC0415 - most commands that know of profiles ask no server

    try:
        port = httpx.URL(url).port
    except httpx.InvalidURL:
        return False
    return port is None or 0 < port < 65536


class Endpoint(BaseModel):
    """An HTTP server and, by reference, the credentials for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    url: str
    """Base URL with its path prefix, if there is one; never with a user or a password in it."""
    bearer_token_file: Path | None = None
    """File with the token; read again for every request, because mounted tokens rotate."""
    bearer_token_env: str | None = None
    """Name of the environment variable with the token."""
    username: str | None = None
    """User of HTTP basic authentication."""
    password_file: Path | None = None
    """File with that user's password."""
    password_env: str | None = None
    """Name of the environment variable with that password."""
    bearer_token: SecretStr | None = None
    """The token itself; in a block only."""
    password: SecretStr | None = None
    """Password of that user itself; in a block only."""
    tenant: str | None = None
    """Value of the header X-Scope-OrgID, for a Loki or Mimir that serves several tenants."""
    ca_file: Path | None = None
    """PEM bundle to trust in place of the system's."""
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Seconds one request may take to answer."""

    @field_validator("url")
    @classmethod
    def _plain_http_url(cls, value: str) -> str:
        if not re.match(r"https?://[^/\s?#]+(?:/[^\s?#]*)?$", value):
            raise ValueError("write a base URL like http://prometheus.monitoring:9090, without query or fragment")
        if "@" in value.split("/")[2]:
            raise ValueError("credentials must not be in the URL; use username with password_file or password_env")
        if not _can_be_asked(value):
            raise ValueError("host or port cannot be read; a port is a number up to 65535, and IPv6 is in brackets")
        return value.rstrip("/")

    @field_validator("bearer_token_env", "password_env")
    @classmethod
    def _is_a_variable_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError("this is the name of an environment variable that holds the secret, not the secret")
        return value

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> Endpoint:
        token = [self.bearer_token_file, self.bearer_token_env, self.bearer_token]
        password = [self.password_file, self.password_env, self.password]
        if any(sum(map(bool, secret)) > 1 for secret in (token, password)):
            raise ValueError("give the secret in one way: by file, by environment variable, or in a block itself")
        if any(token) and (self.username or any(password)):
            raise ValueError("give a bearer token or a username with a password, not both")
        if bool(self.username) != any(password):
            raise ValueError("basic authentication needs username and one of password_file, password_env")
        return self

    @field_validator("bearer_token", "password")
    @classmethod
    def _fits_a_header(cls, value: SecretStr | None) -> SecretStr | None:
        text = value.get_secret_value() if value else ""
        if not (text.isascii() and text.isprintable()):
            raise ValueError("the secret is more than one line of printable ASCII")
        return value


class GuestAddress(BaseModel):
    """A real detector that watches a rehearsal in place of ours; the rehearsal writes this itself."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    name: str = Field(min_length=1, max_length=63)
    """The guest's name."""
    version: str = Field(default="", max_length=200)
    """The version that was built."""
    url: str = Field(pattern=r"^https?://[^@\s?#]+$")
    """URL at which the rehearsal shows the state and the output of the guest's programs."""
    says: str | None = None
    """Regular expression for the lines of output in which the guest itself says that it noticed a fault."""

    @field_validator("says")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        try:
            re.compile(value or "")
        except re.error as error:
            raise ValueError(f"this is no regular expression: {error}") from None
        return value


class Freeze(BaseModel):
    """A time in which no game-day may change anything."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    start: date | datetime
    """A day or a moment, in `zone` unless the moment has an offset."""
    end: date | datetime
    """The last day, which is included, or the moment at which it ends."""
    zone: TimeZone = "UTC"
    """IANA time zone, like Europe/Berlin."""
    why: str = Field(min_length=1, max_length=200)
    """The reason that a refusal names, e.g. `quarter end`."""

    @model_validator(mode="after")
    def _ends_after_it_starts(self) -> Freeze:
        if self.until <= self.since:
            raise ValueError("a freeze must end after its start")
        return self

    @property
    def since(self) -> datetime:
        """The first moment of the freeze."""
        return self._moment(self.start, timedelta())

    @property
    def until(self) -> datetime:
        """The moment after the last one of the freeze."""
        return self._moment(self.end, timedelta(days=1))

    def _moment(self, written: date | datetime, whole_day: timedelta) -> datetime:
        if isinstance(written, datetime):
            return written if written.tzinfo else written.replace(tzinfo=ZoneInfo(self.zone))
        return datetime.combine(written + whole_day, time(), ZoneInfo(self.zone))


class ClusterGuardrails(Limits):
    """The limits of one cluster, and the names of its labels and metrics."""

    protected_namespaces: tuple[str, ...] = ("kube-system",)
    """Namespaces that may have no pod on a target, except pods of DaemonSets and the kubelet's static pods."""
    protected_priority_classes: tuple[str, ...] = ("system-cluster-critical",)
    """Priority classes that no pod on a target may have, with the same exceptions."""
    max_duration: Bound | None = None
    """Longest time that a whole run may take; None leaves it to the plan."""
    max_api_error_percent: float = Field(default=25, gt=0, le=100)
    """Percentage of our own requests that the API server may fail or throttle (429), once there are twenty."""
    pod_disruption_budgets: bool = True
    """If true, a plan that moves pods away needs as many allowed disruptions as it has pods to move."""
    freezes: tuple[Freeze, ...] = ()
    """Times in which no game-day may run."""
    pool_selector: dict[LabelKey, LabelValue] = Field(default={"nvidia.com/gpu.present": "true"})
    """Labels that make a node part of the GPU pool; GPU feature discovery sets this one."""
    topology_label: LabelKey = "topology.kubernetes.io/zone"
    """The label that names a node's rack, zone or other failure domain, for `max_domain_percent`."""
    unhealthy_query: str = (
        'kube_node_spec_taint{key=~"${quarantine_taint_keys}"} or kube_node_spec_unschedulable == 1'
        ' or kube_node_status_condition{condition="Ready",status="true"} == 0 or gameday_health_gpu_fault_active == 1'
    )
    """PromQL for `max_unhealthy_nodes`: a series with a `node` label for each unhealthy node. The default reads
    kube-state-metrics and our node-health controller."""

    def longest_run(self, plan: Guardrails) -> timedelta:
        """Return how long a whole run may take: the plan's limit, or the cluster's if that is shorter."""
        return plan.max_duration if self.max_duration is None else min(plan.max_duration, self.max_duration)


class ClusterProfile(BaseSettings):
    """Everything about one cluster that plans need not know, without secrets."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=_ENV_PREFIX,
        env_nested_delimiter=_ENV_DELIMITER,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    name: str = "default"
    """The cluster's name in reports."""
    identity: str | None = Field(default=None, min_length=1, max_length=253)
    """Runs with the same identity are compared with each other; a cluster that is created again each time (kind in CI)
    needs one here. None: the UID of namespace kube-system."""
    kubeconfig: Path | None = None
    """Path of the kubeconfig. None: $KUBECONFIG, then ~/.kube/config, as with kubectl."""
    kubeconfig_content: SecretStr | None = None
    """The text of a kubeconfig, in place of a file; in a block only."""
    context: str | None = None
    """Context in the kubeconfig. None: the current one."""
    in_cluster: bool = False
    """If true, the pod's own service account is used in place of a kubeconfig."""
    namespace: str = Field(default="gameday", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    """The namespace of our pods and our ledger."""
    prometheus: Endpoint
    """Prometheus, or a server with its query API: rules, alerts over time, GPU and node metrics."""
    alertmanager: Endpoint
    """Alertmanager: the alerts that reached it, their receivers, and silences."""
    loki: Endpoint
    """Loki with the GPU nodes' kernel logs."""
    loki_selector: str = KERNEL_LOG_SELECTOR
    """LogQL stream selector of the kernel log. It must name the namespace: whoever writes to the stream speaks for
    the nodes."""
    loki_node_label: str = "k8s_node_name"
    """The label with the node of a kernel-log line: one that the collector sets, and no pod."""
    loki_node_label_kind: Literal["index", "structured_metadata"] = "index"
    """The place of that label: structured metadata with OTLP ingestion, as in Konduktor's stack (docs/sources.md,
    Konduktor)."""
    prometheus_node_label: str = "Hostname"
    """The node's label on dcgm-exporter's series; `hostname` from 4.6.0-4.8.3 on (docs/sources.md, dcgm-exporter)."""
    alert_node_label: str = "node"
    """The node's label on alerts."""
    background_alerts: tuple[str, ...] = ("Watchdog", "InfoInhibitor")
    """Names of alerts without a node that come and go by themselves, and are never blamed on a game-day."""
    opt_in_label: str = Field(default="gameday.dev/opt-in=true", pattern=r"^[^=\s]+=[^=\s]*$")
    """Label, as key=value, that a node must have before a game-day may touch it."""
    api_client_label: str = Field(default="gameday.dev/api-clients=true", pattern=r"^[^=\s]+=[^=\s]*$")
    """Label, as key=value, that a node must have before clients that load the API server may run there."""
    detector: str = "gameday"
    """The detector profile that watches this cluster; every run warns of what its fault would do to it."""
    detector_profiles: tuple[Path, ...] = ()
    """Folders of the team's own detector profiles (docs/detectors.md), which plans may name; the last one wins."""
    guest: GuestAddress | None = None
    """A real detector in place of ours; `gameday rehearse --guest` sets it."""
    quarantine_taint_keys: tuple[str, ...] = ("trainy.konduktor.ai/faulty",)
    """Keys of the taints that this cluster's detectors set. A node that carries one is no target.

    A taint that a game-day provoked, expected or not, is removed again."""
    ordinary_taint_keys: tuple[str, ...] = ("nvidia.com/gpu",)
    """Keys of the taints that healthy GPU nodes carry to keep other work off; our GPU pods tolerate them."""
    canary_image: str = "registry.k8s.io/pause:3.10"
    """Image of the pods that only ask for a GPU and sleep, to show where GPU work lands; nodes must be able to pull
    it."""
    canary_priority_class: str = Field(default="gameday-probe", min_length=1, max_length=253)
    """PriorityClass of the same pods and of a run's first, as deploy/rbac/priority.yaml makes it. A class of your
    own must have `preemptionPolicy: Never`. Otherwise the scheduler may delete users' pods to make room for ours."""
    allow_dangerous: tuple[str, ...] = ()
    """Types of dangerous faults that plans may use here if they allow them as well (docs/faults.md)."""
    gpu_class_labels: bool = False
    """If true, `gameday fleet` labels each completely measured node with gameday.dev/gpu-class: fast, typical or slow.

    For schedulers (docs/fleet.md, Classes for schedulers)."""
    lease_duration_s: float = Field(default=30.0, ge=1, le=600)
    """Seconds after which a run that no longer renews its lease counts as dead.

    The next run waits that long after a crash. An outage of the API server that lasts longer ends a run."""
    agent_image: str = "ghcr.io/gpu-gameday/agent:latest"
    """Image of the agent's pods, which the `Dockerfile` builds.

    Name it by a digest or a tag that never moves: nodes that have it do not ask again."""
    agent_runtime_class: str | None = None
    """RuntimeClass of the agent's pods: `nvidia` if NVIDIA's runtime is not the nodes' default.

    Without that runtime an agent gets the driver's library only by NRI or, with hostPID, from the host."""
    traces: str | None = Field(default=None, pattern=PLAIN_URL)
    """Base URL of an OTLP/HTTP receiver that each ended run is sent to as a trace; credentials are in the
    environment (docs/exports.md)."""
    openmetrics: Path | None = None
    """File, with a name in `.prom`, that each ended run renews with the newest timings of all plans
    (docs/exports.md, OpenMetrics)."""
    publish_to: str | None = Field(default=None, pattern=r"^[a-z][a-z0-9+.-]*://[^@\s]*$")
    """fsspec URL that finished runs' folders are copied under, like s3://bucket/gamedays; the storage's own
    settings have the credentials."""
    notify: tuple[str, ...] = ()
    """Prefect notification blocks that are sent runs, `type/name` as in `slack-webhook/gpu-oncall`: docs/exports.md."""
    notify_on: Literal["red or change", "every run"] = "red or change"
    """Runs that are sent. Red: any outcome but passed. Change: an outcome that differs from the plan's last run's."""
    rehearsal: Path | None = None
    """Folder of a virtual cluster; `gameday rehearse` sets it."""
    this_machine: bool = False
    """If true, the virtual cluster's only node is the machine itself, with real GPUs; `gameday rehearse --this-machine`
    sets it."""
    lab_control: Path | None = None
    """Control socket of a lab; `gameday rehearse` sets it."""
    price_per_gpu_hour: float | None = Field(default=None, gt=0, le=1_000_000, allow_inf_nan=False)
    """Price of an hour of one GPU, for the cost of an outage in the report. None: GPU-hours only."""
    price_currency: str = Field(default="USD", pattern=r"^\S{1,8}$")
    """Currency of that price, as pages show it."""
    hours_until_noticed: float = Field(default=8, gt=0, le=720, allow_inf_nan=False)
    """Hours until a person notices an outage that no machine does: an assumption of the season's page. The default
    is the mean wait in the 16 hours between two working days."""
    guardrails: ClusterGuardrails = ClusterGuardrails()
    """The most that a game-day on this cluster may cost; a plan can only be stricter."""
    approval: Approval = Approval()
    """A person's approval, which every game-day then needs before it breaks anything."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources: the environment, then the file's values, which are the keyword arguments."""
        return env_settings, init_settings

    @property
    def is_virtual(self) -> bool:
        """True if no machine is behind the nodes."""
        return self.rehearsal is not None and not self.this_machine

    @property
    def outage_terms(self) -> OutageTerms:
        """The figures that a run keeps in its history, so that its report has them a year later."""
        price = self.price_per_gpu_hour
        currency = self.price_currency if price is not None else ""
        hours = self.hours_until_noticed
        return OutageTerms(price_per_gpu_hour=price, currency=currency, hours_until_noticed=hours)

    def required_label(self, role: NodeRole) -> str:
        """Return the label, as key=value, by which a node's owner allows a game-day to use it in a role."""
        return self.opt_in_label if role is NodeRole.GPU else self.api_client_label

    def ordinary_taints(self, role: NodeRole) -> tuple[str, ...]:
        """Return the keys of the taints that a node in a role may carry, because they only keep other work off."""
        own = () if role is NodeRole.GPU else (self.api_client_label.partition("=")[0],)
        return (*self.ordinary_taint_keys, *own)

    @model_validator(mode="after")
    def _one_way_to_the_cluster(self) -> ClusterProfile:
        if self.in_cluster and (self.kubeconfig or self.kubeconfig_content or self.context):
            raise ValueError("in_cluster excludes kubeconfig, kubeconfig_content and context")
        if self.kubeconfig and self.kubeconfig_content:
            raise ValueError("give kubeconfig or kubeconfig_content, not both")
        return self


SECRETS = {
    "kubeconfig_content": ("kubeconfig",),
    "bearer_token": ("bearer_token_file", "bearer_token_env"),
    "password": ("password_file", "password_env"),
}
"""The keys of a profile and its servers that hold a secret itself, each with those that only refer to one."""
_SECTIONS: Mapping[str, type[BaseModel]] = {
    "guardrails": ClusterGuardrails,
    "approval": Approval,
    "guest": GuestAddress,
}
"""The keys that hold keys of their own, besides the servers."""


_SERVERS = ("prometheus", "alertmanager", "loki")
_NO_PROFILE = (
    "no cluster is named: add --profile FILE, a file of five lines (docs/profile.md), or set GAMEDAY_PROMETHEUS__URL, "
    "GAMEDAY_ALERTMANAGER__URL and GAMEDAY_LOKI__URL; without a cluster of your own: gameday rehearse"
)
BLOCK = "block:"
"""Prefix of a profile that is a block: `block:eu`."""
BLOCK_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
"""Pattern of the names that Prefect takes for blocks."""


def load_profile(source: str | Path | None = None) -> ClusterProfile:
    """Return the profile of a YAML file or of a block of the Prefect server, overlaid by the environment's `GAMEDAY_…`.

    Args:
        source: A file's path, or block:NAME; None for the environment alone.

    Raises:
        ProfileError: The file or the block cannot be read, is no mapping, or does not validate.
    """
    values: dict[str, Any] = {}
    if source and (name := block_name(source)):
        from gameday.cluster.profile_block import read_block  # noqa: PLC0415 - Prefect, which no file needs

        values = read_block(name)
    elif source:
        values = read_profile_file(Path(source))
    try:
        return ClusterProfile(**values)
    except ValidationError as error:
        missing = {problem["loc"] for problem in error.errors() if problem["type"] == "missing"}
        if source is None and missing >= {(server,) for server in _SERVERS}:
            raise ProfileError(_NO_PROFILE) from None
        raise ProfileError(explain_profile(error, source)) from None


def block_name(source: str | Path) -> str:
    """Return the name of the block that a profile's source names; empty for a file."""
    return str(source).removeprefix(BLOCK) if str(source).startswith(BLOCK) else ""


def reachable(source: str) -> str:
    """Return a profile's source for a process with another working folder: the absolute path, or the block."""
    return source if block_name(source) else str(Path(source).resolve())


def read_profile_file(path: Path) -> dict[str, Any]:
    """Return the content of a profile's file, not validated yet.

    Raises:
        ProfileError: The file cannot be read, is no YAML mapping, or holds a secret.
    """
    content = _read_mapping(path)
    servers = [(f"{key}.", value) for key, value in content.items() if isinstance(value, Mapping)]
    for where, keys in [("", content), *servers]:
        if secret := next((key for key in SECRETS if key in keys), None):
            raise ProfileError(
                f"{path}: {where}{secret}: a file holds no secret; name its file or environment variable "
                f"({', '.join(SECRETS[secret])}), or store the profile in a block with `gameday cluster save`"
            )
    return content


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        return parse(decode(read(path), str(path)), str(path)).data
    except DocumentError as error:  # its message shows values, and one may be a secret
        first = error.problems[0]
        line = f" line {first.line}:" if first.line else ""
        hint = first.suggestion or "mend that line" if line else "give the path of a profile"
        raise ProfileError(f"cannot use the cluster profile {path}:{line} {first.message}; {hint}") from None


def explain_profile(error: ValidationError, path: str | Path | None) -> str:
    """Return a line per wrong key: its source, what is wrong, what to do. Never the value, which may be a secret."""
    lines = []
    for problem in error.errors(include_url=False, include_input=False, include_context=False):
        where = [str(part) for part in problem["loc"]]
        variable = _ENV_PREFIX + _ENV_DELIMITER.join(where).upper()
        came_from_env = any(name.upper() == variable for name in os.environ)
        source = "the environment" if came_from_env or path is None else str(path)
        key = variable if came_from_env else ".".join(where) or "profile"
        lines.append(f"{source}: {key}: {_advice(problem['type'], problem['msg'], where, variable)}")
    return "cluster profile: " + "\n".join(lines)


def _advice(kind: str, message: str, where: list[str], variable: str) -> str:
    if kind == "missing":
        return f"is missing; set it in the profile or as {variable}"
    if kind == "extra_forbidden":
        model = _SECTIONS.get(where[0], Endpoint) if len(where) > 1 else ClusterProfile
        near = get_close_matches(where[-1], model.model_fields, n=1)
        return f"no such key; did you mean {near[0]}?" if near else "no such key; remove it"
    return message.removeprefix("Value error, ")
