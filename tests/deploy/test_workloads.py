"""What runs in a cluster: as little as each needs of its node, one image, and commands that exist."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday.cluster.profile import ClusterProfile, load_profile
from gameday.xid.lines import beat_uptime_s
from gameday_rehearsal.programs import search
from tests.deploy.manifests import (
    ALL,
    COMPONENTS,
    DEPLOY,
    FILES,
    KUSTOMIZATIONS,
    ROOT,
    WORKLOADS,
    documents,
    generated_by,
    identity,
    named,
    of,
    resources_of,
    template_of,
)

AGENT_IMAGE = str(ClusterProfile.model_fields["agent_image"].default)
OURS = [one for one in WORKLOADS if one["metadata"]["name"] != "dmesg"]
(CLUSTER,) = (one for one in of("ConfigMap") if one["metadata"]["name"] == "gameday-cluster")
KUBECTL = search("kubectl")
TEMPLATE = json.loads((DEPLOY / "prefect/kubernetes/job-template.json").read_text(encoding="utf-8"))
JOB = TEMPLATE["job_configuration"]["job_manifest"]
CLAIM = "{{ reports_claim }}"


def _container(workload: dict[str, Any]) -> dict[str, Any]:
    (container,) = template_of(workload)["spec"]["containers"]
    return container


def _workload(name: str) -> dict[str, Any]:
    (found,) = (one for one in WORKLOADS if one["metadata"]["name"] == name)
    return found


def _policy(name: str) -> dict[str, Any]:
    (found,) = (one for one in of("NetworkPolicy") if one["metadata"]["name"] == name)
    return found


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_workloads_select_their_own_pods_and_name_accounts_that_exist(workload: dict[str, Any]) -> None:
    template = template_of(workload)
    if "selector" in workload["spec"]:
        assert workload["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    account = template["spec"].get("serviceAccountName")
    accounts = {identity(account)[1:] for account in of("ServiceAccount")}
    # Who has no account of its own must not have the default one's token either.
    assert template["spec"].get("automountServiceAccountToken") is False or account
    assert account is None or (workload["metadata"]["namespace"], account) in accounts


@pytest.mark.parametrize("workload", OURS, ids=named)
def test_what_is_ours_runs_without_privileges(workload: dict[str, Any]) -> None:
    pod = template_of(workload)["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert _container(workload)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@pytest.mark.parametrize(
    ("name", "keeps_labels", "interval"), [("gameday-node-health", True, "5s"), ("gameday-repair", False, "15s")]
)
def test_the_prometheus_operator_finds_our_metrics(name: str, keeps_labels: bool, interval: str) -> None:
    (monitor,) = (one for one in of("PodMonitor") if one["metadata"]["name"] == name)
    template = template_of(_workload(name))
    assert monitor["metadata"]["namespace"] == _workload(name)["metadata"]["namespace"]
    assert monitor["spec"]["selector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (port,) = template["spec"]["containers"][0]["ports"]
    assert (endpoint["port"], endpoint["interval"]) == (port["name"], interval)
    # Only the controller's series have a label that the scraping would give, too: `node`.
    assert endpoint.get("honorLabels", False) is keeps_labels


@pytest.mark.parametrize("name", ["gameday-node-health", "gameday-repair"])
def test_two_of_a_kind_run_on_two_machines_where_there_are_two(name: str) -> None:
    workload = _workload(name)
    assert workload["spec"]["replicas"] == 2
    (preferred,) = template_of(workload)["spec"]["affinity"]["podAntiAffinity"][
        "preferredDuringSchedulingIgnoredDuringExecution"
    ]
    labels = template_of(workload)["metadata"]["labels"]
    assert preferred["podAffinityTerm"]["labelSelector"]["matchLabels"].items() <= labels.items()


def test_of_two_controllers_one_leads() -> None:
    assert "--leader-election" in _container(_workload("gameday-node-health"))["args"]


def test_the_controller_may_run_where_only_the_control_plane_has_no_gpus() -> None:
    tolerations = template_of(_workload("gameday-node-health"))["spec"]["tolerations"]
    assert {toleration["key"] for toleration in tolerations} == {"node-role.kubernetes.io/control-plane"}


def test_the_shipper_beats_and_then_ships_the_ring_buffer(tmp_path: Path) -> None:
    dmesg = tmp_path / "dmesg"
    dmesg.write_text('#!/bin/sh\necho "[12.500000] $*"\n')
    dmesg.chmod(0o755)
    started = subprocess.Popen(
        _container(_workload("dmesg"))["command"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert started.stdout is not None
    try:
        beat, line = started.stdout.readline(), started.stdout.readline()
    finally:
        os.killpg(started.pid, signal.SIGKILL)  # in a container the loop that beats ends with the first process
        started.wait()
        started.stdout.close()
    assert beat_uptime_s(beat) is not None
    assert line == "[12.500000] --follow\n"


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_every_container_says_what_it_needs_and_may_take(workload: dict[str, Any]) -> None:
    resources = _container(workload)["resources"]
    assert {"cpu", "memory"} <= set(resources["requests"])
    assert "memory" in resources["limits"]


@pytest.mark.parametrize("workload", OURS, ids=named)
def test_what_watches_and_breaks_nodes_does_not_run_on_them(workload: dict[str, Any]) -> None:
    affinity = template_of(workload)["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert {"key": "nvidia.com/gpu.present", "operator": "DoesNotExist"} in term["matchExpressions"]


def test_there_is_one_image_and_the_agents_pods_have_it_too() -> None:
    assert {_container(workload)["image"] for workload in OURS} == {AGENT_IMAGE}
    assert CLUSTER["data"]["GAMEDAY_AGENT_IMAGE"] == AGENT_IMAGE


def test_the_manifests_user_is_the_images() -> None:
    (user,) = re.findall(r"^USER (\d+):\d+$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert {template_of(workload)["spec"]["securityContext"]["runAsUser"] for workload in OURS} == {int(user)}


def test_the_clusters_settings_are_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in CLUSTER["data"].items():
        monkeypatch.setenv(name, value)
    profile = load_profile()
    assert profile.in_cluster
    known = {name.upper() for name in ClusterProfile.model_fields}
    assert {name.removeprefix("GAMEDAY_").partition("__")[0] for name in CLUSTER["data"]} <= known


def test_the_guardrails_that_are_only_shown_would_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guardrails in comments of the manifest and of the page are valid as they are written."""
    for text in (ROOT / "deploy/cluster.yaml", ROOT / "docs/install.md"):
        (shown,) = re.findall(r"^ *# GAMEDAY_GUARDRAILS: '(.+)'$", text.read_text(encoding="utf-8"), re.MULTILINE)
        monkeypatch.setenv("GAMEDAY_GUARDRAILS", shown)
        for name, value in CLUSTER["data"].items():
            monkeypatch.setenv(name, value)
        assert load_profile().guardrails.windows


@pytest.mark.parametrize(
    "name", ["gameday-worker", "gameday-reaper", "gameday-node-health", "gameday-repair", "gameday-listener"]
)
def test_who_reads_a_profile_is_given_the_clusters_settings(name: str) -> None:
    assert {"configMapRef": {"name": CLUSTER["metadata"]["name"]}} in _container(_workload(name))["envFrom"]


@pytest.mark.parametrize("name", ["gameday-worker", "gameday-kubernetes-worker"])
def test_the_worker_polls_the_pool_that_prefect_yaml_names(name: str) -> None:
    (deployments,) = documents(ROOT / "prefect.yaml")
    (pool,) = {one["work_pool"]["name"] for one in deployments["deployments"]}
    assert f"--pool={pool}" in _container(_workload(name))["command"]


def test_a_jobs_pod_is_as_the_worker_that_runs_flows_itself() -> None:
    job, worker = JOB["spec"]["template"]["spec"], template_of(_workload("gameday-worker"))["spec"]
    for key in ("serviceAccountName", "enableServiceLinks", "affinity", "securityContext", "volumes"):
        given = job[key] if key != "volumes" else json.loads(json.dumps(job[key]).replace(CLAIM, "gameday-reports"))
        assert given == worker[key]
    (container,) = job["containers"]
    for key in ("workingDir", "envFrom", "securityContext", "volumeMounts"):
        assert container[key] == _container(_workload("gameday-worker"))[key]
    properties = TEMPLATE["variables"]["properties"]
    assert properties["reports_claim"]["default"] == "gameday-reports"
    asked = set(re.findall(r"\{\{ (\w+) \}\}", json.dumps(TEMPLATE["job_configuration"])))
    assert asked == set(properties)


@pytest.mark.parametrize(
    "client", ["gameday-worker", "gameday-kubernetes-worker", "gameday-repair", "gameday-listener"]
)
def test_who_needs_the_server_finds_it_and_shows_it_the_password_it_asks_for(client: str) -> None:
    def environment(name: str) -> dict[str, Any]:
        return {one["name"]: one.get("value") or one["valueFrom"] for one in _container(_workload(name))["env"]}

    worker, server = environment(client), environment("gameday-prefect")
    (service,) = (one for one in of("Service") if one["metadata"]["name"] == "gameday-prefect")
    (port,) = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert worker["PREFECT_API_URL"] == f"http://{host}:{port['port']}/api"
    assert worker["PREFECT_API_AUTH_STRING"] == server["PREFECT_SERVER_API_AUTH_STRING"]


def test_only_workers_and_their_jobs_repairer_and_listener_reach_the_server() -> None:
    policy = _policy("gameday-prefect")
    (rule,) = policy["spec"]["ingress"]
    *peers, jobs = rule["from"]
    assert jobs["podSelector"]["matchLabels"].items() <= JOB["spec"]["template"]["metadata"]["labels"].items()
    clients = ["gameday-worker", "gameday-repair", "gameday-listener", "gameday-kubernetes-worker"]
    for peer, name in zip(peers, clients, strict=True):
        labels = template_of(_workload(name))["metadata"]["labels"]
        assert peer["podSelector"]["matchLabels"].items() <= labels.items()
    server = template_of(_workload("gameday-prefect"))["metadata"]["labels"]
    assert policy["spec"]["podSelector"]["matchLabels"].items() <= server.items()


PROMETHEUS = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
ALERTMANAGER = PROMETHEUS | {"podSelector": {"matchLabels": {"app.kubernetes.io/name": "alertmanager"}}}
WEBHOOK_PORT = 9401
LET_IN: dict[str, list[tuple[Any, Any]]] = {
    "gameday-worker": [(PROMETHEUS, "metrics")],
    "gameday-kubernetes-worker": [],
    "gameday-reaper": [],
    "gameday-node-health": [(PROMETHEUS, "metrics"), (ALERTMANAGER, WEBHOOK_PORT)],
    "gameday-repair": [(PROMETHEUS, "metrics")],
    "gameday-listener": [(ALERTMANAGER, "alerts")],
    "dmesg": [],
}
"""Who reaches which port of a workload; who reaches the Prefect server has a test of its own."""


@pytest.mark.parametrize("workload", WORKLOADS, ids=named)
def test_every_workload_lets_in_only_who_has_to_reach_it(workload: dict[str, Any]) -> None:
    name, labels = workload["metadata"]["name"], template_of(workload)["metadata"]["labels"]
    (policy,) = (
        one
        for one in of("NetworkPolicy")
        if one["metadata"]["namespace"] == workload["metadata"]["namespace"]
        and one["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    )
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    if name != "gameday-prefect":
        let_in = [{"from": [peer], "ports": [{"port": port}]} for peer, port in LET_IN[name]]
        assert policy["spec"].get("ingress", []) == let_in


def test_nobody_reaches_the_pods_of_flow_runs() -> None:
    policy = _policy("gameday-flow-run")["spec"]
    labels = JOB["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items() and "ingress" not in policy


def test_the_controllers_webhook_asks_for_a_token_that_need_not_be_there() -> None:
    page = (ROOT / "docs" / "node-health.md").read_text(encoding="utf-8")
    container, pod = _container(_workload("gameday-node-health")), template_of(_workload("gameday-node-health"))["spec"]
    (token,) = (Path(one.partition("=")[2]) for one in container["args"] if one.startswith("--alert-token-file="))
    (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == str(token.parent))
    (volume,) = (one for one in pod["volumes"] if one["name"] == mount["name"])
    assert volume["secret"]["optional"] is True
    secret = volume["secret"]["secretName"]
    assert f"kubectl -n gameday create secret generic {secret} --from-file={token.name}=" in page
    assert f"http://gameday-node-health.gameday.svc:{WEBHOOK_PORT}/alerts" in page


def test_the_listener_has_no_rights() -> None:
    assert template_of(_workload("gameday-listener"))["spec"]["automountServiceAccountToken"] is False


def test_the_listener_reads_the_token_and_has_the_address_that_alertmanager_is_told() -> None:
    page = (ROOT / "docs" / "prefect.md").read_text(encoding="utf-8")
    container = _container(_workload("gameday-listener"))
    options = dict(one.removeprefix("--").split("=") for one in container["args"])
    (port,) = container["ports"]
    assert options["port"] == str(port["containerPort"])
    (service,) = (one for one in of("Service") if one["metadata"]["name"] == "gameday-listener")
    (served,) = service["spec"]["ports"]
    host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
    assert f"url: http://{host}:{served['port']}/alerts\n" in page
    token = Path(options["token-file"])
    (mount,) = (one for one in container["volumeMounts"] if one["mountPath"] == str(token.parent))
    volumes = {one["name"]: one for one in template_of(_workload("gameday-listener"))["spec"]["volumes"]}
    secret = volumes[mount["name"]]["secret"]["secretName"]
    created = re.findall(rf"^    kubectl -n (\S+) create secret generic {secret} --from-file={token.name}=", page, re.M)
    assert created == ["gameday", "monitoring"], "one for the listener, one for Alertmanager"
    assert f"credentials_file: /etc/alertmanager/secrets/{secret}/{token.name}\n" in page


def test_the_shipper_is_what_log_based_detectors_look_for_and_runs_on_faulty_nodes() -> None:
    (shipper,) = of("DaemonSet")
    assert (shipper["metadata"]["namespace"], shipper["metadata"]["name"]) == ("dmesg-logging", "dmesg")
    pod = shipper["spec"]["template"]["spec"]
    assert pod["tolerations"] == [{"operator": "Exists"}]
    assert pod["automountServiceAccountToken"] is False
    assert _container(shipper)["securityContext"] == {
        "privileged": True,
        "runAsUser": 0,
        "readOnlyRootFilesystem": True,
    }


_PYTHON = [sys.executable, "-m"]


@pytest.mark.parametrize(
    ("name", "program", "subcommands"),
    [
        ("gameday-node-health", [*_PYTHON, "gameday_health"], 0),
        ("gameday-reaper", [*_PYTHON, "gameday.cli"], 1),
        ("gameday-repair", [*_PYTHON, "gameday.cli"], 2),
        ("gameday-listener", [*_PYTHON, "gameday.cli"], 1),
        ("gameday-worker", [*_PYTHON, "prefect"], 2),
        ("gameday-kubernetes-worker", [*_PYTHON, "prefect"], 2),
        ("gameday-prefect", [*_PYTHON, "prefect"], 2),
    ],
)
@pytest.mark.slow
def test_commands_and_their_arguments_exist(name: str, program: list[str], subcommands: int) -> None:
    container = _container(_workload(name))
    own = 3 if container["command"][0] == "python" else 1
    arguments = [*container["command"][own:], *container.get("args", [])]
    usage = subprocess.run(
        [*program, *arguments[:subcommands], "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "200"},
    ).stdout
    flags = {argument.partition("=")[0] for argument in arguments[subcommands:]}
    assert flags <= set(re.findall(r"--[a-z-]+", usage))


def test_every_manifest_is_applied_by_one_kustomization() -> None:
    assert sorted(file for path in (*KUSTOMIZATIONS, *COMPONENTS) for file in resources_of(path)) == FILES


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not there; `make setup` fetches it")
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
@pytest.mark.slow
def test_kubectl_builds_each_kustomization(kustomization: Any) -> None:
    done = subprocess.run([KUBECTL, "kustomize", kustomization.parent], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    made = len(re.findall(r"^kind:", done.stdout, re.MULTILINE))
    assert made == sum(path in resources_of(kustomization) for path, _ in ALL) + len(generated_by(kustomization))


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is not there; `make setup` fetches it")
def test_each_dashboards_config_map_is_what_grafanas_sidecar_reads() -> None:
    built = subprocess.run([KUBECTL, "kustomize", DEPLOY / "grafana"], capture_output=True, text=True, check=True)
    made = list(YAML(typ="safe", pure=True).load_all(built.stdout))
    files = sorted((DEPLOY / "grafana").glob("*.json"))
    assert [identity(one) for one in made] == [("ConfigMap", "gameday", f"gameday-{f.stem}-dashboard") for f in files]
    for one, file in zip(made, files, strict=True):
        # kube-prometheus-stack, values.yaml: grafana.sidecar.dashboards.label and labelValue.
        assert one["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert one["data"] == {file.name: file.read_text(encoding="utf-8")}


def test_the_readme_names_every_folder() -> None:
    readme = (DEPLOY / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in sorted(DEPLOY.iterdir()) if path.is_dir() and f"`{path.name}/`" not in readme] == []
