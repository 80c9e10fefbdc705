"""The rehearsal's Prometheus and Alertmanager: the real programs, configured for a cluster that lives for minutes.

This module only writes configurations and command lines; the supervisor starts, watches and ends the programs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import bcrypt
from ruamel.yaml import YAML

from gameday.observe.api_server_metrics import (
    API_SERVER_JOB,
    API_SERVER_METRICS,
    CONTROLLER_METRICS,
    ETCD_METRICS,
    SCHEDULER_JOB,
    SCHEDULER_METRICS,
    SERVER_LABEL,
    Metric,
)
from gameday.observe.dcgm import RUN_METRICS
from gameday.shipped import shipped
from gameday_rehearsal.nodes.exposition import GPU_HEALTH
from gameday_rehearsal.programs import find_program
from gameday_rehearsal.scrape_pace import LARGE, SMALL, WORKED_ON, WORKED_ON_TARGETS, scrape_every_s

RULES = shipped("deploy") / "alerts" / "gpu-faults.rules.yaml"
"""The production rules for GPU nodes."""
_CONTROLLER_GROUP = "gpu-node-health"
"""The group of the rules about our controller's metrics; without it NodeHealthControllerAbsent fires forever."""
CONTROL_PLANE_RULES = RULES.with_name("control-plane.rules.yaml")
"""The production rules for control planes."""
_BUDGET = "instance:apiserver_memory_budget:bytes"

# One scrape of everything is 77 MB at 1,000 nodes of 8 GPUs. Above this number of nodes only what rules and reports
# read is scraped, as a team would trim dcgm-exporter's counters file.
_ALL_SERIES_UP_TO = 100
# Above this number, Prometheus reads these series of all GPUs, and the others only for the nodes of game-days: 40,000
# GPUs with all series that rules read are 1.6 million, for which it took 9 GB.
_FLEET_METRICS = ("DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_XID_ERRORS")
_FLEET_EVERY_S = 30.0  # the usual interval of a ServiceMonitor, and dcgm-exporter's own pace
_DISCOVERED_EVERY_S = 1.0
_EVALUATED_EVERY_S = 2.0  # with more than 1,000 nodes
_RETENTION = "6h"
# A scrape may take no longer than its interval. An API server's page of 2.5 MB takes an idle server 0.2 s. In a LIST
# storm on two busy cores every other scrape took more than one second, and nearly every one more than two.
_COMPONENT_EVERY_S = 5.0


ALERTMANAGER_USER = "gameday"
"""User name for an Alertmanager with a password."""


@dataclass(frozen=True)
class Program:
    """A program's command line, and a URL that answers 200 once it serves."""

    name: str
    argv: tuple[str, ...]
    ready_url: str
    log_file: Path


@dataclass(frozen=True)
class ScrapeJob:
    """A server to scrape: `address` is host:port with `path`; `every_s` None means the default pace.

    `only` names the metrics to ask for; empty means all. `discovered` is the path at which the server answers
    Prometheus' discovery by HTTP, which then gives the pace; None: the server itself is the only target.
    """

    name: str
    address: str
    every_s: float | None = None
    only: tuple[str, ...] = ()
    path: str = "/metrics"
    discovered: str | None = None

    def configuration(self, default_s: float) -> dict[str, object]:
        """Return the scrape_config; `default_s` is the default pace."""
        every = _duration(self.every_s or default_s)
        return {
            "job_name": self.name,
            "metrics_path": self.path,
            "scrape_interval": every,
            "scrape_timeout": every,
            # The exporters name node, namespace and pod themselves, as dcgm-exporter's own manifests have it.
            "honor_labels": True,
            **({"params": {"name": list(self.only)}} if self.only else {}),
            **self._targets(),
        }

    def _targets(self) -> dict[str, object]:
        if self.discovered is None:
            return {"static_configs": [{"targets": [self.address]}]}
        url = f"http://{self.address}{self.discovered}"
        return {"http_sd_configs": [{"url": url, "refresh_interval": _duration(_DISCOVERED_EVERY_S)}]}


@dataclass(frozen=True)
class Credentials:
    """The authority of the scraped servers' certificates, and a client certificate that may read metrics."""

    ca: Path
    certificate: Path
    key: Path

    def configuration(self) -> dict[str, object]:
        """Return the part of a scrape_config for HTTPS."""
        files = {"ca_file": str(self.ca), "cert_file": str(self.certificate), "key_file": str(self.key)}
        return {"scheme": "https", "tls_config": files}


@dataclass(frozen=True)
class ComponentJob:
    """A scrape job for control-plane components. Their pages are long, so only the listed metrics are kept."""

    name: str
    servers: Mapping[str, str]
    """Addresses (host:port) by the server's name, which becomes the label `instance`."""
    metrics: tuple[Metric, ...]
    credentials: Credentials | None = None
    """Credentials for HTTPS; None for plain HTTP."""

    def configuration(self, default_s: float) -> dict[str, object]:
        """Return the scrape_config, which has a pace of its own."""
        kept = "|".join(name for metric in self.metrics for name in metric.series)
        return {
            "job_name": self.name,
            **(self.credentials.configuration() if self.credentials else {}),
            "scrape_interval": _duration(_COMPONENT_EVERY_S),
            "scrape_timeout": _duration(_COMPONENT_EVERY_S),
            "metric_relabel_configs": [{"source_labels": ["__name__"], "regex": kept, "action": "keep"}],
            "static_configs": [
                {"targets": [address], "labels": {SERVER_LABEL: name}} for name, address in self.servers.items()
            ],
        }


@dataclass(frozen=True)
class Pace:
    """Seconds between two scrapes of all GPUs, of the node-health controller, and two evaluations of the rules."""

    scrape_s: float
    health_s: float
    evaluation_s: float


def pace(nodes: int) -> Pace:
    """Return a pace that two cores can keep; for the scrapes see `scrape_every_s`.

    The controller has few metrics at any size, so they are read faster. Rules about GPUs get new samples once a scrape:
    with 500 nodes, five evaluations a scrape take half a core. Above 1,000 nodes, those that game-days work on are read
    faster than the rest.
    """
    if nodes > LARGE:
        return Pace(scrape_s=_FLEET_EVERY_S, health_s=1.0, evaluation_s=_EVALUATED_EVERY_S)
    scrape_s = scrape_every_s(nodes)
    if nodes <= SMALL:
        return Pace(scrape_s=scrape_s, health_s=0.5, evaluation_s=0.5)
    return Pace(scrape_s=scrape_s, health_s=1.0, evaluation_s=max(1.0, scrape_s / 2))


def scrape_jobs(
    nodes: int,
    *,
    dcgm_address: str,
    health_address: str | None,
    repair_address: str | None = None,
    kube_state_metrics: str | None = None,
    interfaces: bool = True,
) -> tuple[ScrapeJob, ...]:
    """Return the scrape jobs of the alert rules, each with its pace; large rehearsals leave out node_exporter.

    All addresses are host:port; None if there is nothing to scrape. `interfaces`: the nodes have node_exporter's
    metrics of network interfaces.
    """
    at = pace(nodes)
    node_exporter = ScrapeJob("node-exporter", dcgm_address, at.scrape_s, path="/node-exporter/metrics")
    return (
        *_gpu_jobs(nodes, dcgm_address, at.scrape_s),
        *((ScrapeJob("node-health", health_address, at.health_s),) if health_address else ()),
        *((ScrapeJob("node-repair", repair_address, at.health_s),) if repair_address else ()),
        *((ScrapeJob("kube-state-metrics", kube_state_metrics, at.scrape_s),) if kube_state_metrics else ()),
        *((node_exporter,) if interfaces and nodes <= _ALL_SERIES_UP_TO else ()),
    )


def _gpu_jobs(nodes: int, address: str, every_s: float) -> tuple[ScrapeJob, ...]:
    if nodes <= _ALL_SERIES_UP_TO:
        return (ScrapeJob("dcgm-exporter", address, every_s),)
    if nodes <= LARGE:
        return (ScrapeJob("dcgm-exporter", address, every_s, _read_metrics()),)
    worked_on = ScrapeJob(
        "dcgm-exporter-worked-on", address, None, _read_metrics(), path=WORKED_ON, discovered=WORKED_ON_TARGETS
    )
    return (ScrapeJob("dcgm-exporter", address, every_s, _FLEET_METRICS), worked_on)


def component_jobs(servers: Mapping[str, str], credentials: Credentials) -> tuple[ComponentJob, ...]:
    """Return the scrape jobs of a control plane, under the names that kube-prometheus gives them.

    Args:
        servers: host:port by the component's name, such as `kube-apiserver-2`; all except API servers, scheduler,
            controller-manager and etcd are left out.
        credentials: The files for all but etcd, which serves metrics by plain HTTP.
    """
    kinds: tuple[tuple[str, str, tuple[Metric, ...], Credentials | None], ...] = (
        (API_SERVER_JOB, "kube-apiserver", API_SERVER_METRICS, credentials),
        (SCHEDULER_JOB, "kube-scheduler", SCHEDULER_METRICS, credentials),
        ("kube-controller-manager", "kube-controller-manager", CONTROLLER_METRICS, credentials),
        ("etcd", "etcd", ETCD_METRICS, None),
    )
    return tuple(
        ComponentJob(job, {name: at for name, at in servers.items() if name.startswith(first)}, metrics, files)
        for job, first, metrics, files in kinds
    )


def prometheus_program(
    folder: Path,
    *,
    port: int,
    nodes: int,
    jobs: Sequence[ScrapeJob | ComponentJob],
    alertmanager_port: int,
    alertmanager_password: Path | None = None,
    rule_files: Sequence[Path] = (RULES, CONTROL_PLANE_RULES),
) -> Program:
    """Write Prometheus' configuration into `folder`, where its data goes too, and return its program.

    `alertmanager_password` is the file with the password that Alertmanager asks for, if it does.
    Raises ProgramMissingError if there is no Prometheus, and OSError if `folder` cannot be written.
    """
    at = pace(nodes)
    folder = folder.resolve()
    alertmanager: dict[str, object] = {"static_configs": [{"targets": [f"127.0.0.1:{alertmanager_port}"]}]}
    if alertmanager_password:
        alertmanager["basic_auth"] = {"username": ALERTMANAGER_USER, "password_file": str(alertmanager_password)}
    own = ScrapeJob("prometheus", f"127.0.0.1:{port}", max(5.0, at.scrape_s))
    config = folder / "prometheus.yml"
    _write_yaml(
        config,
        {
            "global": {
                "scrape_interval": _duration(at.scrape_s),
                "scrape_timeout": _duration(at.scrape_s),
                "evaluation_interval": _duration(at.evaluation_s),
            },
            "rule_files": [str(path.resolve()) for path in rule_files],
            "alerting": {"alertmanagers": [alertmanager]},
            "scrape_configs": [job.configuration(at.scrape_s) for job in (*jobs, own)],
        },
    )
    argv = (
        str(find_program("prometheus")),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'prometheus-data'}",
        f"--storage.tsdb.retention.time={_RETENTION}",
        f"--web.listen-address=127.0.0.1:{port}",
        # The alerts' runbook_url leads to /user/runbooks of this server; by default it would use the machine's name.
        f"--web.external-url=http://127.0.0.1:{port}",
        f"--web.user-assets={shipped('docs')}",
        # Firing alerts are sent again this often, so that a restarted Alertmanager has them in less than a minute.
        "--rules.alert.resend-delay=10s",
        "--log.level=warn",
    )
    return Program("prometheus", argv, f"http://127.0.0.1:{port}/-/ready", folder / "prometheus.log")


def node_rules(folder: Path, *, has_controller: bool) -> Path:
    """Return the rules for GPU nodes, without our controller's if another detector is in its place.

    Args:
        folder: Gets a copy without them.
        has_controller: True if our node-health controller is to run on the cluster.

    Raises:
        OSError: `folder` cannot be written.
    """
    if has_controller:
        return RULES
    content = YAML(typ="safe", pure=True).load(RULES.read_text(encoding="utf-8"))
    content["groups"] = [group for group in content["groups"] if group["name"] != _CONTROLLER_GROUP]
    copy = folder.resolve() / RULES.name
    _write_yaml(copy, content)
    return copy


def control_plane_rules(folder: Path, budget_bytes: int | None) -> Path:
    """Return the rules for control planes, with the API servers' memory budget written in if there is one.

    As shipped, the rules take GOMEMLIMIT as the budget, and ask others to write their own figure in its place.

    Args:
        folder: Gets a copy with the budget.
        budget_bytes: Resident memory above which the lab kills an API server; None: there is no budget.

    Raises:
        OSError: `folder` cannot be written.
    """
    if budget_bytes is None:
        return CONTROL_PLANE_RULES
    content = YAML(typ="safe", pure=True).load(CONTROL_PLANE_RULES.read_text(encoding="utf-8"))
    rules = (rule for group in content["groups"] for rule in group["rules"])
    budget = next(rule for rule in rules if rule.get("record") == _BUDGET)
    budget["expr"] = f'group by (instance) (up{{job="{API_SERVER_JOB}"}}) * {budget_bytes}'
    copy = folder.resolve() / CONTROL_PLANE_RULES.name
    _write_yaml(copy, content)
    return copy


def alertmanager_program(
    folder: Path, *, port: int, webhook_url: str | None = None, password: str | None = None
) -> Program:
    """Write Alertmanager's configuration into `folder`, where its data goes too, and return its program.

    Alerts are sent at once and one by one, to `webhook_url` or, without one, to nobody. With a password, only
    ALERTMANAGER_USER gets answers, and the file has just the password's hash.
    Raises ProgramMissingError if there is no Alertmanager, and OSError if `folder` cannot be written.
    """
    folder = folder.resolve()  # the program may run in another working directory
    receiver: dict[str, object] = {"name": "gameday"}
    if webhook_url:
        receiver["webhook_configs"] = [{"url": webhook_url, "send_resolved": True}]
    config = folder / "alertmanager.yml"
    _write_yaml(
        config,
        {
            "route": {
                "receiver": "gameday",
                "group_by": ["..."],  # each alert by itself
                "group_wait": "0s",
                "group_interval": "1s",
                "repeat_interval": "1h",
            },
            "receivers": [receiver],
        },
    )
    argv = (
        str(find_program("alertmanager")),
        f"--config.file={config}",
        f"--storage.path={folder / 'alertmanager-data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",  # alone: no gossip, no second port
        "--log.level=warn",
        *([f"--web.config.file={_asks_for(password, folder)}"] if password else []),
    )
    return Program("alertmanager", argv, f"http://127.0.0.1:{port}/-/ready", folder / "alertmanager.log")


def _asks_for(password: str, folder: Path) -> Path:
    # The lowest work factor, 2**4: the password has 256 random bits, and every request would wait for the hash.
    hashed = bcrypt.hashpw(password.encode(), bcrypt.gensalt(rounds=4)).decode()
    config = folder / "alertmanager-web.yml"
    _write_yaml(config, {"basic_auth_users": {ALERTMANAGER_USER: hashed}})
    return config


def _read_metrics() -> tuple[str, ...]:
    """Return the dcgm-exporter metrics that the shipped rules and the report's charts read, without the health watches.

    Those are ten series for each GPU, and a single rule reads them, a catch-all.
    """
    read = {*re.findall(r"DCGM_[A-Z0-9_]+", RULES.read_text(encoding="utf-8")), *RUN_METRICS}
    return tuple(sorted(read - {GPU_HEALTH}))


def _duration(seconds: float) -> str:
    """Return a duration in Prometheus' notation, which has no fractions."""
    return f"{round(seconds * 1000)}ms"


def _write_yaml(path: Path, content: dict[str, object]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    with path.open("w", encoding="utf-8") as file:
        yaml.dump(content, file)
