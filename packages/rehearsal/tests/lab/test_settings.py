"""The lab's settings: what is refused, and what becomes of the rest on the programs' command lines."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from gameday.errors import ControlError
from gameday.plan.rehearsal import TOPOLOGY_SCHEDULER, Balance, LabComponent, why_refused
from gameday_rehearsal.lab.balancer import BACKEND, config_text
from gameday_rehearsal.lab.components import (
    Component,
    Ports,
    apiserver,
    controller_manager,
    etcd,
    port_count,
    scheduler,
    topology_scheduler,
)
from gameday_rehearsal.lab.identities import make_secrets
from gameday_rehearsal.lab.settings import STOCK, LabSettings, changed
from gameday_rehearsal.lab.topology import write_configuration

_THREE = LabSettings(api_servers=3)
# What the lab sets, and a game-day may set otherwise.
_MAY_DIFFER = {
    LabComponent.ETCD: {"quota-backend-bytes", "unsafe-no-fsync", "log-level"},
    LabComponent.API_SERVER: {"enable-admission-plugins"},
    LabComponent.CONTROLLER_MANAGER: {"controllers"},
    LabComponent.SCHEDULER: set[str](),
    LabComponent.TOPOLOGY_SCHEDULER: set[str](),
}


def _ports(settings: LabSettings) -> Ports:
    return Ports.among(range(1001, 1001 + port_count(settings)))


def _components(folder: Path, settings: LabSettings) -> dict[str, Component]:
    ports, secrets = _ports(settings), make_secrets(folder)
    servers = [apiserver(folder, ports, secrets, settings, number + 1) for number in range(settings.api_servers)]
    others = [make(folder, ports, secrets, settings) for make in (etcd, controller_manager, scheduler)]
    by_zone = topology_scheduler(folder, ports, secrets, settings, write_configuration(folder, settings))
    return {one.name: one for one in (*servers, *others, by_zone)}


def _flags(component: Component) -> dict[str, str]:
    return dict(flag.removeprefix("--").split("=", 1) for flag in component.flags)


def test_every_flag_that_the_lab_sets_is_refused_or_meant_to_differ(tmp_path: Path) -> None:
    for component in _components(tmp_path, STOCK).values():
        program = LabComponent(component.program)
        open_to_all = {flag for flag in _flags(component) if not why_refused(program, flag)}
        assert open_to_all == _MAY_DIFFER[program], program


@pytest.mark.parametrize(
    ("component", "flag"),
    [
        ("kube-apiserver", "secure-port"),
        ("kube-apiserver", "etcd-servers"),
        ("kube-apiserver", "tls-private-key-file"),
        ("kube-apiserver", "audit-log-path"),
        ("kube-apiserver", "authentication-token-webhook-config-file"),
        ("kube-controller-manager", "flex-volume-plugin-dir"),
        ("kube-controller-manager", "kube-api-qps"),
        ("kube-scheduler", "config"),
        ("etcd", "config-file"),
        ("etcd", "log-outputs"),
        ("etcd", "listen-client-urls"),
    ],
)
def test_a_flag_of_the_labs_own_is_refused_by_its_name(component: str, flag: str) -> None:
    with pytest.raises(ValidationError, match=f"--{flag} of {component}"):
        LabSettings.model_validate({"flags": {component: {flag: "x"}}})


@pytest.mark.parametrize("flag", ["--goaway-chance", "secure_port", "Secure-Port", "", "a b", "goaway-chance=1"])
def test_what_is_no_flags_name_is_refused(flag: str) -> None:
    with pytest.raises(ValidationError, match="written without its dashes"):
        LabSettings.model_validate({"flags": {"kube-apiserver": {flag: "x"}}})


@pytest.mark.parametrize("flag", ["goaway-chance", "runtime-config", "feature-gates", "max-requests-inflight", "v"])
def test_flags_that_change_how_the_server_works_are_taken(flag: str) -> None:
    assert not why_refused(LabComponent.API_SERVER, flag)


@pytest.mark.parametrize("variable", ["LD_PRELOAD", "PATH", "HOME", "ETCD_NAME", "GO", "gogc", "HTTPS_PROXY", "GOGC\n"])
def test_variables_beyond_gos_runtime_are_refused(variable: str) -> None:
    with pytest.raises(ValidationError, match="variables of Go's runtime"):
        LabSettings.model_validate({"environment": {"kube-apiserver": {variable: "x"}}})


@pytest.mark.parametrize(
    "settings",
    [
        {"api_servers": 0},
        {"api_servers": 6},
        {"balance": "random"},
        {"flags": {"kube-proxy": {"v": "4"}}},
        {"scheduler_qps": 0},
        {"api_server_memory": "lots"},
        {"api_server_memory": 0},
        {"hold": ["kube-apiserver-2"]},
        {"api_servers": 3, "hold": ["kube-apiserver"]},
        {"api_servers": 3, "hold": ["etcd"]},
        {"flags": {"kube-apiserver": {"v": "4\n--secure-port=1"}}},
    ],
)
def test_other_settings_that_make_no_sense_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LabSettings.model_validate(settings)


def test_settings_survive_the_way_to_the_labs_process() -> None:
    settings = LabSettings.model_validate(
        {
            "api_servers": 3,
            "balance": "leastconn",
            "flags": {"kube-apiserver": {"goaway-chance": 0.02, "profiling": False}},
            "environment": {"kube-apiserver": {"GOGC": 50}},
            "scheduler_qps": 2000,
            "api_server_memory": "1GiB",
            "hold": ["kube-apiserver-3"],
        }
    )
    assert settings.api_server_memory == 2**30
    assert settings.flags[LabComponent.API_SERVER] == {"goaway-chance": "0.02", "profiling": "false"}
    assert LabSettings.model_validate_json(settings.model_dump_json()) == settings


def test_overrides_reach_their_component_and_no_other(tmp_path: Path) -> None:
    settings = LabSettings.model_validate(
        {
            "api_servers": 2,
            "flags": {"kube-apiserver": {"goaway-chance": "0.02"}, "etcd": {"quota-backend-bytes": "100"}},
            "environment": {"kube-apiserver": {"GOGC": "50"}},
            "controller_manager_qps": 1000,
            "scheduler_qps": 2000,
        }
    )
    components = _components(tmp_path, settings)
    assert {name for name, one in components.items() if "goaway-chance" in _flags(one)} == {
        "kube-apiserver",
        "kube-apiserver-2",
    }
    assert {name for name, one in components.items() if one.environment} == {"kube-apiserver", "kube-apiserver-2"}
    assert [flag for flag in components["etcd"].flags if "quota" in flag] == ["--quota-backend-bytes=100"]
    limits = {
        name: (_flags(components[name])["kube-api-qps"], _flags(components[name])["kube-api-burst"])
        for name in ("kube-controller-manager", "kube-scheduler")
    }
    assert limits == {"kube-controller-manager": ("1000", "2000"), "kube-scheduler": ("2000", "4000")}


def test_a_stock_lab_leaves_the_clients_limits_to_the_programs(tmp_path: Path) -> None:
    assert not any("kube-api-qps" in _flags(one) for one in _components(tmp_path, STOCK).values())


def test_each_server_has_its_own_port_and_audit_log_and_all_clients_have_the_balancers(tmp_path: Path) -> None:
    ports, components = _ports(_THREE), _components(tmp_path, _THREE)
    servers = [_flags(one) for one in components.values() if one.program == LabComponent.API_SERVER]
    assert [int(flags["secure-port"]) for flags in servers] == list(ports.servers)
    assert ports.apiserver not in ports.servers
    assert [Path(flags["audit-log-path"]).name for flags in servers] == ["audit.log", "audit-2.log", "audit-3.log"]
    assert len({flags["etcd-servers"] for flags in servers}) == 1


def test_a_single_server_is_its_clients_address_and_needs_no_further_ports() -> None:
    ports = _ports(STOCK)
    assert ports.server(1) == ports.apiserver
    assert (ports.servers, ports.balancer_metrics) == ((), None)


@pytest.mark.parametrize("balance", Balance)
def test_the_balancer_knows_every_server_and_listens_on_loopback_only(balance: Balance) -> None:
    settings = LabSettings(api_servers=3, balance=balance)
    ports = _ports(settings)
    text = config_text(ports, settings, Path('/a "folder"/$HOME/ca.crt'))
    assert f"    balance {balance}\n" in text
    assert re.findall(r"^    server (\S+) (\S+)$", text, re.MULTILINE) == [
        ("kube-apiserver", f"127.0.0.1:{ports.servers[0]}"),
        ("kube-apiserver-2", f"127.0.0.1:{ports.servers[1]}"),
        ("kube-apiserver-3", f"127.0.0.1:{ports.servers[2]}"),
    ]
    assert set(re.findall(r"bind (\S+):", text)) == {"127.0.0.1"}
    assert f"default_backend {BACKEND}\n" in text
    assert r'ca-file "/a \"folder\"/\$HOME/ca.crt"' in text


def test_a_running_lab_lays_an_arms_settings_over_those_it_was_started_with() -> None:
    started = LabSettings.model_validate(
        {"api_servers": 3, "environment": {"kube-apiserver": {"GOGC": "100"}}, "api_server_memory": "1GiB"}
    )
    other = changed(started, {"environment": {"kube-apiserver": {"GOGC": None, "GOMEMLIMIT": "800MiB"}}})
    assert other.environment == {LabComponent.API_SERVER: {"GOMEMLIMIT": "800MiB"}}
    assert (other.api_servers, other.api_server_memory) == (3, started.api_server_memory)
    assert changed(started, {}) == started


@pytest.mark.parametrize(
    ("rehearsal", "says"),
    [
        ({"balance": "leastconn"}, "cannot change balance, only"),
        ({"hold": []}, "cannot change hold"),
        ({"topology": True}, "was started without `topology: true`"),
        ({"flags": {"kube-apiserver": {"secure-port": "1"}}}, "files or addresses"),
        ({"environment": "GOGC=50"}, "environment"),
    ],
)
def test_a_running_lab_refuses_what_only_a_new_one_can_have(rehearsal: dict[str, object], says: str) -> None:
    with pytest.raises(ControlError, match=says):
        changed(STOCK, rehearsal)


def test_the_topology_aware_scheduler_has_its_limits_in_its_file_and_the_nodes_their_interval(tmp_path: Path) -> None:
    settings = LabSettings.model_validate({"topology": True, "topology_interval": "5s", "scheduler_qps": 100})
    written = json.loads(write_configuration(tmp_path, settings).read_bytes())
    connection = written["clientConnection"]
    assert (connection["qps"], connection["burst"]) == (100, 200)
    assert [one["schedulerName"] for one in written["profiles"]] == [TOPOLOGY_SCHEDULER]
    assert settings.node_arguments() == ["--topology-interval=5"]
    off = changed(settings, {"topology": False})
    assert (off.topology, off.node_arguments()) == (False, [])
