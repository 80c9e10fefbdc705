"""deploy/ before Kubernetes' own API server: every manifest is taken, and what claims to need no privilege has none."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.deploy.manifests import ALL, DEPLOY, KUSTOMIZATIONS, generated_by, identity, of, resources_of
from tests.rehearsal.lab.plane import Plane

pytestmark = pytest.mark.lab
# Of kinds whose definitions the Prometheus operator brings.
OPERATORS = {
    "PrometheusRule": ("-f", DEPLOY / "alerts" / "gpu-faults.prometheusrule.yaml"),
    "PodMonitor": ("-k", DEPLOY / "node-health" / "podmonitor"),
}
OURS = [path for path in KUSTOMIZATIONS if ("-k", path.parent) not in OPERATORS.values()]


def _dry_run(plane: Plane, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    argv = ["kubectl", "--kubeconfig", str(plane.admin), "apply", "--dry-run=server", *map(str, arguments)]
    return subprocess.run(argv, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def namespaces(plane: Plane) -> None:
    """A dry run makes none, and nothing is taken in a namespace that is not there."""
    for namespace in of("Namespace"):
        plane.kubectl("apply", "-f", "-", stdin=json.dumps(namespace))


@pytest.mark.usefixtures("namespaces")
@pytest.mark.parametrize("kustomization", OURS, ids=lambda path: path.parent.name)
def test_every_manifest_is_taken_and_breaks_no_rule_of_pod_security(plane: Plane, kustomization: Path) -> None:
    folder = kustomization.parent
    done = _dry_run(plane, "-k", folder)
    assert done.returncode == 0, done.stderr
    assert "would violate PodSecurity" not in done.stderr
    files = resources_of(kustomization)
    taken = sorted(line.split()[0].partition("/")[2] for line in done.stdout.splitlines())
    assert taken == sorted(
        [*(identity(document)[2] for path, document in ALL if path in files), *generated_by(kustomization)]
    )


@pytest.mark.parametrize("kind", OPERATORS)
def test_the_server_says_what_is_missing_where_the_operator_is(plane: Plane, kind: str) -> None:
    done = _dry_run(plane, *OPERATORS[kind])
    assert done.returncode == 1
    assert f'no matches for kind "{kind}"' in done.stderr
