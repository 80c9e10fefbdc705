"""The cluster profile: where a cluster's servers are, how to prove who we are, and what its labels are called.

One profile describes one cluster, so that plans need not. It is read from a
YAML file and from the environment (`GAMEDAY_…`, nested keys joined by `__`:
`GAMEDAY_PROMETHEUS__URL`); the environment wins. Credentials are only ever
referred to (a file, an environment variable): a profile can be printed,
logged and kept beside a report.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

_ENV_PREFIX = "GAMEDAY_"
_ENV_DELIMITER = "__"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ProfileError(Exception):
    """The profile cannot be used; the message names the file, the key and what to do."""


class Endpoint(BaseModel):
    """One HTTP server and, by reference, the credentials for it."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True)

    url: str
    """Base URL, with whatever path prefix the server sits behind; never with a user or a password in it."""
    bearer_token_file: Path | None = None
    """File holding the token; read anew for every request, because mounted tokens rotate."""
    bearer_token_env: str | None = None
    """Name of the environment variable holding the token."""
    username: str | None = None
    """User of HTTP basic authentication."""
    password_file: Path | None = None
    password_env: str | None = None
    tenant: str | None = None
    """Value of X-Scope-OrgID, where Loki or Mimir serve several tenants."""
    ca_file: Path | None = None
    """PEM bundle to trust in place of the system's."""
    timeout_s: float = Field(default=10.0, gt=0, le=300)
    """Seconds one request may take to answer."""

    @field_validator("url")
    @classmethod
    def _plain_http_url(cls, value: str) -> str:
        if not re.match(r"https?://[^/\s?#]+[^\s?#]*$", value):
            raise ValueError("write a base URL like http://prometheus.monitoring:9090, without query or fragment")
        if "@" in value.split("/")[2]:
            raise ValueError("credentials must not stand in the URL; use username with password_file or password_env")
        return value.rstrip("/")

    @field_validator("bearer_token_env", "password_env")
    @classmethod
    def _is_a_variable_name(cls, value: str | None) -> str | None:
        if value is not None and not _NAME.fullmatch(value):
            raise ValueError("this is the name of an environment variable that holds the secret, not the secret")
        return value

    @model_validator(mode="after")
    def _one_way_to_authenticate(self) -> Endpoint:
        token = [self.bearer_token_file, self.bearer_token_env]
        password = [self.password_file, self.password_env]
        if all(token) or all(password):
            raise ValueError("give the secret by file or by environment variable, not both")
        if any(token) and (self.username or any(password)):
            raise ValueError("give a bearer token or a username with a password, not both")
        if bool(self.username) != any(password):
            raise ValueError("basic authentication needs username and one of password_file, password_env")
        return self


class ClusterProfile(BaseSettings):
    """Everything about one cluster that is not the plan's business. Holds no secret."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix=_ENV_PREFIX,
        env_nested_delimiter=_ENV_DELIMITER,
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    name: str = "default"
    """What people call the cluster; shown in reports."""
    kubeconfig: Path | None = None
    """None: $KUBECONFIG, then ~/.kube/config, as kubectl does."""
    context: str | None = None
    """None: the kubeconfig's current context."""
    in_cluster: bool = False
    """Use the pod's own service account in place of a kubeconfig."""
    namespace: str = Field(default="gameday", pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)
    """Where our pods and our ledger live."""
    prometheus: Endpoint
    alertmanager: Endpoint
    loki: Endpoint
    loki_selector: str = '{k8s_daemonset_name="dmesg"}'
    """LogQL stream selector of the kernel log."""
    loki_node_label: str = "k8s_node_name"
    """Where a kernel-log line says which node wrote it."""
    loki_node_label_kind: Literal["index", "structured_metadata"] = "index"
    """An index label goes into the stream selector; with OTLP ingestion the node is structured metadata,
    which only a filter behind the selector finds (research/gpu-health.md 7.1)."""
    prometheus_node_label: str = "Hostname"
    """The node's label on dcgm-exporter's series."""
    alert_node_label: str = "node"
    """The node's label on alerts."""
    opt_in_label: str = Field(default="gameday.dev/opt-in=true", pattern=r"^[^=\s]+=[^=\s]*$")
    """key=value a node must carry before a game-day may touch it."""
    detector: str = "gameday"
    """The detector profile that watches this cluster."""
    quarantine_taint_keys: tuple[str, ...] = ("trainy.konduktor.ai/faulty",)
    """Keys of the taints this cluster's detectors set. A node that carries one is no target, and one that a game-day
    provoked, expected or not, is removed again."""
    agent_image: str = "ghcr.io/gpu-gameday/agent:latest"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """The environment over the file's values, which come in as keyword arguments; nothing else."""
        return env_settings, init_settings

    @model_validator(mode="after")
    def _one_way_to_the_cluster(self) -> ClusterProfile:
        if self.in_cluster and (self.kubeconfig or self.context):
            raise ValueError("in_cluster excludes kubeconfig and context")
        return self


def load_profile(path: Path | None = None) -> ClusterProfile:
    """The profile of a YAML file (None: the environment alone), overlaid by `GAMEDAY_…`.

    Raises ProfileError for a file that cannot be read, is no YAML mapping, or does not validate.
    """
    values = _read_mapping(path) if path else {}
    try:
        return ClusterProfile(**values)
    except ValidationError as error:
        raise ProfileError(_explain(error, path)) from None


def _read_mapping(path: Path) -> dict[str, Any]:
    try:
        content = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(
            f"cannot read the cluster profile {path}: {error.strerror}; give the path of a profile"
        ) from None
    except UnicodeDecodeError:
        raise ProfileError(f"the cluster profile {path} is not UTF-8 text; save it as such") from None
    except MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ProfileError(f"the cluster profile {path} is not YAML:{line} {error.problem}; mend that line") from None
    except YAMLError:
        raise ProfileError(f"the cluster profile {path} is not YAML; check it with any YAML editor") from None
    if not isinstance(content, Mapping) or not all(isinstance(key, str) for key in content):
        raise ProfileError(f"the cluster profile {path} must be a mapping of keys like 'prometheus:' to their values")
    return dict(content)


def _explain(error: ValidationError, path: Path | None) -> str:
    """One line per wrong key: where it came from, what is wrong, what to do. Never the value: it may be a secret."""
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
        return f"is missing; set it in the profile file or as {variable}"
    if kind == "extra_forbidden":
        model = Endpoint if len(where) > 1 else ClusterProfile
        near = get_close_matches(where[-1], model.model_fields, n=1)
        return f"no such key; did you mean {near[0]}?" if near else "no such key; remove it"
    return message.removeprefix("Value error, ")
