"""The rights that game-days of the control plane need: least-privilege, told in the README, and none given twice."""

from __future__ import annotations

from typing import Any

import pytest
from ruamel.yaml import YAML

from gameday_control_plane.api_clients.webhook import NAME
from gameday_rehearsal.seed import CONTROL_PLANE_HERE
from kubesim.apiserver.resources import RESOURCES, STORED_VERBS
from tests.deploy.manifests import CONTROL_PLANE, DEPLOY, RBAC, ROOT, documents, identity, resources_of

FLOW_CONTROL = "flowcontrol.apiserver.k8s.io"
SERVED = {
    **{(resource.group, resource.plural): {*resource.verbs} for resource in RESOURCES},
    # kubesim has neither priority and fairness nor dynamic resource allocation.
    **{
        (group, plural): {*STORED_VERBS}
        for group, plural in (
            (FLOW_CONTROL, "flowschemas"),
            (FLOW_CONTROL, "prioritylevelconfigurations"),
            ("resource.k8s.io", "resourceclaims"),
            ("resource.k8s.io", "resourceclaimtemplates"),
        )
    },
}
ACCOUNTS = ("gameday-api-client", "gameday-api-canary", "gameday-runner", "gameday-reaper")
KINDS = ("Role", "ClusterRole")
HERE = list(YAML(typ="safe", pure=True).load_all(CONTROL_PLANE_HERE.read_text(encoding="utf-8")))


def _rules(account: str, namespace: str) -> list[dict[str, Any]]:
    bound = [
        (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"])
        for binding in CONTROL_PLANE
        if binding["kind"].endswith("Binding")
        and binding["metadata"].get("namespace", "") == namespace
        and any(who["name"] == account for who in binding["subjects"])
    ]
    return [rule for role in CONTROL_PLANE if identity(role) in bound for rule in role["rules"]]


def _cell(account: str, namespace: str) -> str:
    rules = _rules(account, namespace)
    said = [f"{', '.join(r.get('resources') or r['nonResourceURLs'])}: {', '.join(r['verbs'])}" for r in rules]
    return " · ".join(said) or "–"


@pytest.mark.parametrize("account", ACCOUNTS)
def test_the_readme_has_the_rights_of_every_account(account: str) -> None:
    page = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8").splitlines()
    assert f"| `{account}` | {_cell(account, '')} | {_cell(account, 'gameday-load')} |" in page


@pytest.mark.parametrize("role", [d for d in CONTROL_PLANE if d["kind"] in KINDS], ids=lambda d: d["metadata"]["name"])
def test_rules_name_real_resources_and_no_wildcards(role: dict[str, Any]) -> None:
    for rule in role["rules"]:
        asked = [(group, plural) for group in rule.get("apiGroups", ()) for plural in rule.get("resources", ())]
        assert all({*rule["verbs"]} <= SERVED[each] for each in asked)
        assert rule.get("nonResourceURLs") in (None, ["/readyz"])


def test_bindings_bind_what_exists_to_accounts_that_exist() -> None:
    identities = {identity(document) for document in (*RBAC, *CONTROL_PLANE, *HERE)}
    for binding in (d for d in (*CONTROL_PLANE, *HERE) if d["kind"].endswith("Binding")):
        namespace = binding["metadata"].get("namespace", "")
        assert (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]) in identities
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in identities


def test_load_and_the_canary_may_touch_nothing_outside_of_their_namespace() -> None:
    given = {binding["metadata"].get("namespace", "") for binding in CONTROL_PLANE if "subjects" in binding}
    assert given == {"", "gameday-load"}
    assert _rules("gameday-api-client", "") == []
    assert [rule for rule in _rules("gameday-api-canary", "") if "resources" in rule] == []


def test_no_real_cluster_is_given_what_only_a_rehearsal_gives() -> None:
    granted = {verb for role in (*RBAC, *CONTROL_PLANE) for rule in role.get("rules", ()) for verb in rule["verbs"]}
    assert "impersonate" not in granted
    (as_master,) = (d for d in HERE if identity(d) == ("ClusterRole", "", "gameday-api-client-as-master"))
    assert [rule["resourceNames"] for rule in as_master["rules"]] == [["gameday-master"], ["system:masters"]]


def test_the_right_to_make_webhooks_is_one_accounts_and_applied_apart() -> None:
    assert not any("validatingwebhookconfigurations" in str(role) for role in (*RBAC, *CONTROL_PLANE))
    webhook = documents(DEPLOY / "control-plane" / "webhook" / "webhook.yaml")
    rules = {(one["kind"], one["metadata"].get("namespace", "")): one["rules"] for one in webhook if "rules" in one}
    create, own = rules["ClusterRole", ""]
    assert (create["verbs"], own["verbs"], own["resourceNames"]) == (["create"], ["get", "delete"], [NAME])
    assert [rule["verbs"] for rule in rules["Role", "gameday-load"]] == [["create", "deletecollection"]]
    assert [rule["verbs"] for rule in rules["Role", "kube-node-lease"]] == [["list"]]
    assert {one["name"] for role in webhook for one in role.get("subjects", ())} == {"gameday-webhook"}


def test_nothing_of_it_is_applied_by_default() -> None:
    default = resources_of(DEPLOY / "kustomization.yaml")
    assert {path.parent.name for path in default} == {"deploy", "rbac", "reaper", "prefect"}
