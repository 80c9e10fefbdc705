"""Everything in deploy/ that `kubectl apply` is given, parsed once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
_NAMED = sorted(DEPLOY.rglob("kustomization.yaml"))
COMPONENTS = [path for path in _NAMED if "\nkind: Component\n" in path.read_text(encoding="utf-8")]
"""Kustomizations that change another one's objects, and are not built alone."""
KUSTOMIZATIONS = [path for path in _NAMED if path not in COMPONENTS]
CHART = [DEPLOY / "Chart.yaml", DEPLOY / "values.yaml", *(DEPLOY / "templates").iterdir()]
"""The files that only the Helm chart reads."""
FILES = sorted(
    path
    for path in DEPLOY.rglob("*.yaml")
    if path not in _NAMED
    and path not in CHART
    and "alerts" not in path.relative_to(DEPLOY).parts
    and not path.name.endswith("-patch.yaml")  # for `kubectl patch`
)


def documents(path: Path) -> list[dict[str, Any]]:
    return list(YAML(typ="safe", pure=True).load_all(path.read_text(encoding="utf-8")))


def resources_of(kustomization: Path) -> list[Path]:
    """Return the files that a kustomization applies."""
    return [kustomization.parent / name for name in documents(kustomization)[0].get("resources", [])]


def generated_by(kustomization: Path) -> list[str]:
    """Return the names of the ConfigMaps that a kustomization makes from files."""
    return [one["name"] for one in documents(kustomization)[0].get("configMapGenerator", [])]


ALL = [(path, document) for path in FILES for document in documents(path)]
RBAC = [document for path, document in ALL if path.parent.name == "rbac"]
CONTROL_PLANE = [document for path, document in ALL if path.parent.name == "control-plane"]


def of(*kinds: str) -> list[dict[str, Any]]:
    return [document for _, document in ALL if document["kind"] in kinds]


def identity(document: dict[str, Any]) -> tuple[str, str, str]:
    metadata = document["metadata"]
    return document["kind"], metadata.get("namespace", ""), metadata["name"]


WORKLOADS = of("Deployment", "DaemonSet", "CronJob")


def template_of(workload: dict[str, Any]) -> dict[str, Any]:
    """The pods' template."""
    spec = workload["spec"]
    found: dict[str, Any] = (
        spec["jobTemplate"]["spec"]["template"] if workload["kind"] == "CronJob" else spec["template"]
    )
    return found


def named(workload: dict[str, Any]) -> str:
    return "/".join(identity(workload))
