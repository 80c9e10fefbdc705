"""The Helm chart before Kubernetes' own API server: taken, installed, upgraded, refused a second time, removed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.helm import EVERY_PART, helm, rendered
from tests.deploy.manifests import DEPLOY
from tests.rehearsal.lab.plane import Plane, running

pytestmark = pytest.mark.lab


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    """A control plane of this module's own, with nothing of ours in it."""
    with running(tmp_path_factory.mktemp("bare")) as started:
        yield started


def _install(plane: Plane, name: str, namespace: str, options: tuple[str, ...] = ()) -> str:
    """Return what Helm says; of a refusal, its complaint."""
    install = ("install", name, DEPLOY, "--namespace", namespace, "--create-namespace")
    done = helm(*install, *options, kubeconfig=plane.admin)
    return done.stdout if done.returncode == 0 else f"refused: {done.stderr}"


def _get(plane: Plane, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(plane.kubectl("get", *arguments, "--output", "json"))
    return found


def _of_ours(plane: Plane) -> list[str]:
    kinds = "deployments,cronjobs,clusterroles,clusterrolebindings,roles,serviceaccounts,configmaps,namespaces"
    found = _get(plane, kinds, "--all-namespaces", "--selector", "app.kubernetes.io/part-of=gameday")
    return sorted(f"{one['kind']}/{one['metadata']['name']}" for one in found["items"])


def test_every_object_of_the_chart_is_taken(bare: Plane) -> None:
    """A dry run makes no namespace, and nothing is taken in one that is not there."""
    names = ("chaos", "gameday-load", "dmesg-logging", "training", "batch")
    for name in names:
        bare.kubectl("create", "namespace", name)
    try:
        text = rendered(*EVERY_PART, namespace="chaos")
        taken = bare.kubectl("apply", "--dry-run=server", "-f", "-", stdin=text).splitlines()
    finally:
        bare.kubectl("delete", "namespace", *names)
    assert len(taken) == text.count("\nkind: ")
    assert all(line.endswith("(server dry run)") for line in taken)


def test_a_release_from_install_to_uninstall(bare: Plane) -> None:
    said = _install(bare, "gameday", "gameday")
    assert "kubectl -n gameday create secret generic gameday-prefect" in said
    labels = _get(bare, "namespace", "gameday")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged", "--create-namespace was first"

    before = _of_ours(bare)
    assert "cannot reuse a name that is still in use" in _install(bare, "gameday", "gameday")
    for name, namespace in (("second", "gameday"), ("second", "elsewhere")):
        refusal = _install(bare, name, namespace)
        assert "invalid ownership metadata" in refusal
        assert 'must equal "second": current value is "gameday"' in refusal
    assert _of_ours(bare) == before

    assert bare.kubectl("diff", "-f", "-", stdin=rendered()) == "", "what is there is what is rendered"
    changes = bare.kubectl("diff", "-f", "-", stdin=rendered("image.tag=0.2.0"), check=False)
    assert "+        image: ghcr.io/gpu-gameday/agent:0.2.0" in changes

    upgrade = ("upgrade", "gameday", DEPLOY, "--namespace", "gameday")
    done = helm(*upgrade, values=("image.tag=0.2.0", "nodeHealth.enabled=true"), kubeconfig=bare.admin)
    assert done.returncode == 0, done.stderr
    assert [name for name in _of_ours(bare) if name not in before] == ["Deployment/gameday-node-health"]
    worker = _get(bare, "deployment", "gameday-worker", "--namespace", "gameday")
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "ghcr.io/gpu-gameday/agent:0.2.0"

    done = helm("uninstall", "gameday", "--namespace", "gameday", "--wait", kubeconfig=bare.admin)
    assert done.returncode == 0, done.stderr
    assert _of_ours(bare) == ["Namespace/gameday"]
    bare.kubectl("delete", "namespace", "gameday")


def test_what_kubectl_applied_is_taken_over_only_when_helm_is_asked_to(bare: Plane) -> None:
    bare.kubectl("apply", "-k", str(DEPLOY))
    try:
        before = _of_ours(bare)
        refusal = _install(bare, "gameday", "gameday")
        assert "invalid ownership metadata" in refusal
        assert 'label validation error: missing key "app.kubernetes.io/managed-by"' in refusal
        said = _install(bare, "gameday", "gameday", options=("--take-ownership", "--force-conflicts"))
        assert "STATUS: deployed" in said
        assert _of_ours(bare) == before
    finally:
        bare.kubectl("delete", "-k", str(DEPLOY))
