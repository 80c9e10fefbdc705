"""Helm, as `make helm` builds it; without it a test skips."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday_rehearsal.programs import TOOLS
from tests.deploy.manifests import DEPLOY

HELM = TOOLS / "bin" / "helm"
EVERY_PART = (
    "prefect.kubernetesWorker=true",
    "dmesgShipper.enabled=true",
    "nodeHealth.enabled=true",
    "nodeHealth.repair=true",
    "listener.enabled=true",
    "controlPlane.enabled=true",
    "controlPlane.webhook=true",
    "grafana.enabled=true",
    "jobLog.namespaces={training,batch}",
    "probes.namespaces={training}",
    "cudaError.namespaces={training,batch}",
)
"""Values that ask for every part whose kinds an API server knows without the Prometheus operator."""
OPERATORS = (
    "nodeHealth.podMonitor.enabled=true",
    "gameDayMetrics.enabled=true",
    "alerts.gpuFaults=true",
    "alerts.controlPlane=true",
)
"""Values that ask for the parts which need the operator's kinds."""


def helm(
    *arguments: str | Path, values: tuple[str, ...] = (), kubeconfig: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Helm; each value is that of a `--set`."""
    if not HELM.exists():
        pytest.skip("helm is not there; `make helm` builds it")
    argv = [HELM, *arguments, *(word for value in values for word in ("--set", value))]
    # Nothing of the user's own Helm takes part; without a kubeconfig there is no cluster to ask.
    environment = {"PATH": os.defpath, "HOME": str(TOOLS / "helm-home"), "KUBECONFIG": str(kubeconfig or os.devnull)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=120)


def rendered(*values: str, namespace: str = "gameday", options: tuple[str | Path, ...] = ()) -> str:
    """Render the chart with these values, and return its objects as YAML."""
    done = helm("template", "gameday", DEPLOY, "--namespace", namespace, *options, values=values)
    assert done.returncode == 0, done.stderr
    return done.stdout


def objects(text: str) -> list[dict[str, Any]]:
    return [one for one in YAML(typ="safe", pure=True).load_all(text) if one]
