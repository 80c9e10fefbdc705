"""The manifests of the fault cuda_error: rights as the README has them, a patch that brings what the library reads."""

from __future__ import annotations

import re

from gameday.values.cuda_switch import ANNOTATION, LIBRARY, MAY_FAIL
from gameday_rehearsal.nodes.containers import AGENT_IMAGE
from tests.deploy.manifests import DEPLOY, ROOT, documents, resources_of

FOLDER = DEPLOY / "cuda-error"
(PATCH,) = documents(FOLDER / "pod-patch.yaml")
SOURCE = (FOLDER / "cuda_error.c").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


def test_the_readme_has_the_account_and_its_rights() -> None:
    (account,) = documents(FOLDER / "account" / "account.yaml")
    (pods,) = resources_of(FOLDER / "kustomization.yaml")
    role, binding = documents(pods)
    rights = " · ".join(f"{', '.join(rule['resources'])}: {', '.join(rule['verbs'])}" for rule in role["rules"])
    row = f"| `{account['metadata']['name']}` | {rights} |"
    assert row in (DEPLOY / "README.md").read_text(encoding="utf-8")
    subject = {"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "gameday"}
    assert (binding["subjects"], binding["roleRef"]["name"]) == ([subject], role["metadata"]["name"])
    assert account["metadata"]["namespace"] == "gameday"
    assert account["automountServiceAccountToken"] is False
    assert not {"namespace"} & {*role["metadata"], *binding["metadata"]}, "kubectl -n says where"


def test_the_patch_brings_the_label_the_library_and_the_switch_that_the_program_reads() -> None:
    template = PATCH["spec"]["template"]
    assert template["metadata"]["labels"] == dict([MAY_FAIL])
    (copies,) = template["spec"]["initContainers"]
    (trainer,) = template["spec"]["containers"]
    variables = {one["name"]: one["value"] for one in trainer["env"]}
    _, source, folder = copies["command"]
    assert variables["LD_PRELOAD"] == f"{folder}{LIBRARY}"
    assert copies["image"].startswith(AGENT_IMAGE)
    mounts = {one["name"]: one["mountPath"] for one in trainer["volumeMounts"]}
    assert all("subPath" not in mount for mount in trainer["volumeMounts"])
    switch = next(volume for volume in template["spec"]["volumes"] if "downwardAPI" in volume)
    (item,) = switch["downwardAPI"]["items"]
    assert variables["GAMEDAY_CUDA_SWITCH"] == f"{mounts[switch['name']]}/{item['path']}"
    assert item["fieldRef"]["fieldPath"] == f"metadata.annotations['{ANNOTATION}']"
    assert 'getenv("GAMEDAY_CUDA_SWITCH")' in SOURCE
    (built,) = re.findall(r"^COPY --from=cuda-error /(\S+) (\S+)$", DOCKERFILE, re.MULTILINE)
    assert f"{built[1]}{built[0]}" == source
