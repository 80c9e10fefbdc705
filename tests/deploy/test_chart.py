"""The Helm chart: the same objects as the kustomizations, its values, and what it refuses."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from gameday.cli import run
from gameday.cluster.profile import load_profile
from gameday.exit_codes import ExitCode
from gameday_rehearsal.programs import search
from tests.deploy.helm import EVERY_PART, OPERATORS, helm, objects, rendered
from tests.deploy.manifests import COMPONENTS, DEPLOY, KUSTOMIZATIONS, ROOT, documents, identity, resources_of

KUBECTL = search("kubectl")
Objects = dict[tuple[str, str, str], dict[str, Any]]


def _by_identity(text: str) -> Objects:
    """Parsed, and without the note to Helm that the namespace stays."""
    found = {identity(one): one for one in objects(text)}
    assert len(found) == len(objects(text)), "an object is there twice"
    for one in found.values():
        if one["metadata"].get("annotations") == {"helm.sh/resource-policy": "keep"}:
            del one["metadata"]["annotations"]
    return found


def _kustomized(folder: Path, namespace: str | None = None) -> Objects:
    if KUBECTL is None:
        pytest.skip("kubectl is not there; `make setup` fetches it")
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parsed = objects(done.stdout)
    if namespace:
        for one in parsed:
            one["metadata"]["namespace"] = namespace
    return {identity(one): one for one in parsed}


def _chart_of(name: str) -> Any:
    (values,) = documents(DEPLOY / name)
    return values


def test_the_chart_has_the_projects_version() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    chart = _chart_of("Chart.yaml")
    assert chart["version"] == chart["appVersion"] == project["version"]


def test_the_schema_knows_the_values_that_the_file_has_and_no_others() -> None:
    schema = json.loads((DEPLOY / "values.schema.json").read_text(encoding="utf-8"))

    def names(values: Any, within: dict[str, Any]) -> None:
        within = schema["definitions"][within["$ref"].rpartition("/")[2]] if "$ref" in within else within
        if "properties" not in within:  # labels and the profile: names are the user's
            assert not values
            return
        assert within["additionalProperties"] is False
        assert set(values) == set(within["properties"])
        for name, value in values.items():
            if isinstance(value, dict):
                names(value, within["properties"][name])

    names(_chart_of("values.yaml"), schema)


@pytest.mark.slow
def test_with_its_defaults_the_chart_is_the_kustomization() -> None:
    assert _by_identity(rendered()) == _kustomized(DEPLOY)


HEALTH, LOAD = "nodeHealth.enabled=true", "controlPlane.enabled=true"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "value", "parts"),
    [
        ((), "dmesgShipper.enabled=true", {"dmesg-shipper": None}),
        ((), HEALTH, {"node-health": None}),
        ((HEALTH,), "nodeHealth.repair=true", {"node-health/repair": None}),
        ((HEALTH,), "nodeHealth.podMonitor.enabled=true", {"node-health/podmonitor": None}),
        ((), "listener.enabled=true", {"listener": None}),
        ((), LOAD, {"control-plane": None}),
        ((LOAD,), "controlPlane.webhook=true", {"control-plane/webhook": None}),
        ((), "prefect.kubernetesWorker=true", {"prefect/kubernetes": None}),
        ((), "grafana.enabled=true", {"grafana": None}),
        ((), "jobLog.namespaces={batch}", {"job-log": "batch"}),
        ((), "probes.namespaces={batch}", {"probes": "batch"}),
        ((), "cudaError.namespaces={batch}", {"cuda-error": "batch", "cuda-error/account": None}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_value_adds_what_its_kustomization_applies(
    before: tuple[str, ...], value: str, parts: dict[str, str | None]
) -> None:
    expected: Objects = {}
    for folder, namespace in parts.items():
        expected |= _kustomized(DEPLOY / folder, namespace)
    assert _by_identity(rendered(*before, value)) == _by_identity(rendered(*before)) | expected


@pytest.mark.slow
def test_the_timings_of_game_days_are_the_component_on_the_kustomization(tmp_path: Path) -> None:
    (tmp_path / "deploy").symlink_to(DEPLOY)
    (tmp_path / "kustomization.yaml").write_text(
        "resources: [deploy]\ncomponents: [deploy/prefect/metrics]\n", encoding="utf-8"
    )
    assert _by_identity(rendered("gameDayMetrics.enabled=true")) == _kustomized(tmp_path)


@pytest.mark.slow
def test_all_parts_together_are_every_object_once() -> None:
    found = _by_identity(rendered(*EVERY_PART, *OPERATORS))
    applied = set().union(*(_kustomized(path.parent) for path in _kustomizations_without_a_namespace()))
    assert applied <= found.keys()
    components = {identity(one) for path in COMPONENTS for file in resources_of(path) for one in documents(file)}
    assert components <= found.keys()
    rest = {key for key in found.keys() - applied - components if key[0] != "PrometheusRule"}
    assert {key[1] for key in rest} == {"training", "batch"}


def _kustomizations_without_a_namespace() -> list[Path]:
    granted = ("job-log", "probes", "cuda-error")
    return [path for path in KUSTOMIZATIONS if path.parent.name not in granted]


@pytest.mark.slow
@pytest.mark.parametrize(("value", "name"), [("gpuFaults", "gpu-faults"), ("controlPlane", "control-plane")])
def test_alerts_are_the_rules_with_the_labels_that_the_operator_asks_for(value: str, name: str) -> None:
    found = _by_identity(rendered(f"alerts.{value}=true", "alerts.labels.release=kube-prometheus-stack"))
    (rule,) = (one for key, one in found.items() if key[0] == "PrometheusRule")
    assert rule["metadata"]["labels"].pop("release") == "kube-prometheus-stack"
    assert [rule] == documents(DEPLOY / "alerts" / f"{name}.prometheusrule.yaml")


@pytest.mark.slow
def test_runbooks_open_where_the_value_says(tmp_path: Path) -> None:
    base = "https://git.example/gpu-gameday/blob/main/docs/runbooks/"
    values = ("alerts.gpuFaults=true", "alerts.controlPlane=true")
    found = _by_identity(rendered(*values, f"alerts.runbooks={base}"))
    assert run(["alerts", str(tmp_path), "--runbooks", base]) == ExitCode.PASSED
    rules = [one for path in tmp_path.glob("*.prometheusrule.yaml") for one in documents(path)]
    assert len(rules) == 2
    assert [found[identity(rule)] for rule in rules] == rules
    assert {key: one for key, one in found.items() if key[0] != "PrometheusRule"} == _by_identity(rendered())


@pytest.mark.slow
def test_pod_monitors_get_the_labels_that_the_operator_asks_for() -> None:
    monitor = ("nodeHealth.enabled=true", "nodeHealth.podMonitor.enabled=true", "gameDayMetrics.enabled=true")
    release = [f"{part}.labels.release=kube-prometheus-stack" for part in ("nodeHealth.podMonitor", "gameDayMetrics")]
    found = objects(rendered(*monitor, *release))
    labels = [one["metadata"]["labels"] for one in found if one["kind"] == "PodMonitor"]
    assert [one["release"] for one in labels] == ["kube-prometheus-stack"] * 3
    assert all("app.kubernetes.io/part-of" in one for one in labels)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("named", "image"),
    [
        (["image.tag=0.1.0"], "reg.example/gameday:0.1.0"),
        ([f"image.digest=sha256:{'a' * 64}"], f"reg.example/gameday@sha256:{'a' * 64}"),
    ],
)
def test_image_and_namespace_are_the_releases_everywhere(named: list[str], image: str) -> None:
    values = (*EVERY_PART, *OPERATORS, "image.repository=reg.example/gameday", *named)
    text = rendered(*values, namespace="chaos")
    found = _by_identity(text)
    assert "ghcr.io/gpu-gameday/agent" not in text
    assert "namespace: gameday\n" not in text
    assert ".gameday.svc" not in text
    assert ("Namespace", "", "chaos") in found
    data = found["ConfigMap", "chaos", "gameday-cluster"]["data"]
    assert data["GAMEDAY_AGENT_IMAGE"] == image
    assert data["GAMEDAY_NAMESPACE"] == "chaos"
    assert text.count(f"image: {image}\n") == 8


@pytest.mark.slow
def test_the_profile_is_what_the_values_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The values are those of docs/install.md, and one more."""
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    (written,) = re.findall(r"```yaml\n(# gameday-values\.yaml\n.*?)```", page, re.DOTALL)
    values = tmp_path / "values.yaml"
    more = "profile:\n  GAMEDAY_ORDINARY_TAINT_KEYS: [nvidia.com/gpu, sku]\n"
    written = written.replace("REGISTRY", "registry.example").replace("profile:\n", more)
    values.write_text(written, encoding="utf-8")
    found = _by_identity(rendered(options=("--values", values)))
    assert {"PodMonitor", "PrometheusRule", "DaemonSet"} <= {kind for kind, _, _ in found}
    for name, value in found["ConfigMap", "gameday", "gameday-cluster"]["data"].items():
        monkeypatch.setenv(name, value)
    profile = load_profile()
    assert profile.in_cluster
    assert profile.name == "prod-a"
    assert profile.agent_image == "registry.example/gameday:0.1.0-gpu"
    assert profile.ordinary_taint_keys == ("nvidia.com/gpu", "sku")
    assert profile.guardrails.max_nodes == 1


@pytest.mark.slow
def test_a_prefect_server_of_ones_own_takes_the_place_of_ours() -> None:
    url = "https://prefect.example/api"
    values = (f"prefect.url={url}", "nodeHealth.enabled=true", "nodeHealth.repair=true", "listener.enabled=true")
    ours, theirs = _by_identity(rendered(*values[1:])), _by_identity(rendered(*values))
    gone = {identity(one) for one in documents(DEPLOY / "prefect" / "server.yaml")}
    assert ours.keys() - theirs.keys() == gone
    for name in ("gameday-worker", "gameday-repair", "gameday-listener"):
        (container,) = theirs["Deployment", "gameday", name]["spec"]["template"]["spec"]["containers"]
        assert {"name": "PREFECT_API_URL", "value": url} in container["env"]


@pytest.mark.slow
def test_prometheus_and_alertmanager_may_be_in_another_namespace() -> None:
    text = rendered(*EVERY_PART, "monitoring.namespace=observability")
    let_in = [one for one in objects(text) if one["kind"] == "NetworkPolicy" and "metadata.name" in str(one)]
    assert len(let_in) == 4 and all("observability" in str(one) for one in let_in)
    assert "monitoring" not in str([one["spec"] for one in let_in])


@pytest.mark.slow
def test_the_namespace_may_be_anothers() -> None:
    gone = _by_identity(rendered()).keys() - _by_identity(rendered("namespace.manage=false")).keys()
    assert gone == {("Namespace", "", "gameday")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("images.tag=1", "additional properties 'images' not allowed"),
        ("nodeHealth.enable=true", "additional properties 'enable' not allowed"),
        ("nodeHealth.enabled=perhaps", "at '/nodeHealth/enabled': got string, want boolean"),
        ("image.tag=a b", "at '/image/tag': 'a b' does not match pattern"),
        ("prefect.url=prefect.example", "at '/prefect/url': 'prefect.example' does not match pattern"),
        ("profile.name=prod", "at '/profile': additional properties 'name' not allowed"),
        ("monitoring.namespace=a b", "at '/monitoring/namespace': 'a b' does not match pattern"),
        ("alerts.runbooks=docs/runbooks", "at '/alerts/runbooks': 'docs/runbooks' does not match pattern"),
        ("probes.namespaces={Training}", "at '/probes/namespaces/0': 'Training' does not match pattern"),
        ("nodeHealth.repair=true", "add --set nodeHealth.enabled=true"),
        ("nodeHealth.podMonitor.enabled=true", "add --set nodeHealth.enabled=true"),
        ("controlPlane.webhook=true", "add --set controlPlane.enabled=true"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(value: str, why: str) -> None:
    done = helm("template", "gameday", DEPLOY, values=(value,))
    assert done.returncode == 1
    assert why in done.stderr
    assert done.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize("values", [(), (*EVERY_PART, *OPERATORS)], ids=["defaults", "every-part"])
def test_helm_finds_nothing_to_complain_of(values: tuple[str, ...]) -> None:
    done = helm("lint", "--strict", DEPLOY, values=values)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 chart(s) linted, 0 chart(s) failed" in done.stdout


@pytest.mark.slow
def test_the_notes_name_the_secret_of_each_part_that_waits_for_one() -> None:
    said = []
    for values in ((), ("listener.enabled=true",)):
        done = helm("install", "gameday", DEPLOY, "--namespace", "chaos", "--dry-run=client", values=values)
        assert done.returncode == 0, done.stderr
        said.append(done.stdout.partition("NOTES:")[2])
    assert "-n chaos create secret generic gameday-prefect " in said[0]
    assert "gameday-alert-token" not in said[0]
    assert "kubectl -n chaos create secret generic gameday-alert-token --from-file=token=alert-token\n" in said[1]
    assert "http://gameday-listener.chaos.svc:9099/alerts\n" in said[1]


@pytest.mark.slow
def test_a_packaged_chart_is_the_same(tmp_path: Path) -> None:
    done = helm("package", DEPLOY, "--destination", tmp_path)
    assert done.returncode == 0, done.stderr
    (package,) = tmp_path.iterdir()
    done = helm("template", "gameday", package, "--namespace", "gameday")
    assert done.stdout == rendered()
