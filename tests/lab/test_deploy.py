"""deploy/ before Kubernetes' own API server: every manifest is taken, and what claims to need no privilege has none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ALL, DEPLOY, KUSTOMIZATIONS, documents, identity, of
from tests.lab.plane import Plane

pytestmark = pytest.mark.lab


def _dry_run(plane: Plane, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = ["kubectl", "--kubeconfig", str(plane.admin), "apply", "--dry-run=server", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def namespaces(plane: Plane) -> None:
    """A dry run makes none, and nothing is taken in a namespace that is not there."""
    for namespace in of("Namespace"):
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("kustomization", KUSTOMIZATIONS, ids=lambda path: path.parent.name)
def test_every_manifest_is_taken_and_breaks_no_rule_of_pod_security(plane: Plane, kustomization: Path) -> None:
    folder = kustomization.parent
    done = _dry_run(plane, "-k", folder)
    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr
    files = {folder / name for name in documents(kustomization)[0]["resources"]}
    taken = sorted(line.split()[0].partition("/")[2] for line in done.stdout.splitlines())
    assert taken == sorted(identity(document)[2] for path, document in ALL if path in files)


def test_the_alert_rules_say_whose_resource_they_are_where_the_operator_is_missing(plane: Plane) -> None:
    done = _dry_run(plane, "-f", DEPLOY / "alerts" / "gpu-faults.prometheusrule.yaml")
    assert done.returncode == 1
    assert 'no matches for kind "PrometheusRule"' in done.stderr
