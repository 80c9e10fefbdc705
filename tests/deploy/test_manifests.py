"""Rights: well formed, least-privilege, and sufficient for the calls that our code makes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from gameday_health.leading import LEADING_CONTROLLER
from kubesim.apiserver.resources import RESOURCES, Resource
from tests.deploy.manifests import ALL, RBAC, ROOT, identity, of

# kubesim has no dynamic resource allocation.
DRA = [
    Resource("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim"),
    Resource("resource.k8s.io", "v1", "resourceslices", "ResourceSlice", namespaced=False),
]
SERVED = {(resource.group, resource.plural): resource for resource in (*RESOURCES, *DRA)}


def _granted(account: str) -> set[tuple[str, str, str, str]]:
    """(namespace, group, resource, verb) of everything bound to the account; namespace "" is the whole cluster."""
    roles = {identity(document): document for document in RBAC}
    found = set()
    for binding in (d for d in RBAC if d["kind"].endswith("Binding")):
        if not any(subject["name"] == account for subject in binding["subjects"]):
            continue
        namespace = binding["metadata"].get("namespace", "")
        role = roles[(binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"])]
        for rule in role["rules"]:
            found |= {
                (namespace, group, resource, verb)
                for group in rule["apiGroups"]
                for resource in rule["resources"]
                for verb in rule["verbs"]
            }
    return found


def _rights(account: str, namespace: str) -> str:
    """What is bound to the account in a namespace ("" is the whole cluster), as a cell of deploy/README.md has it."""
    roles = [
        next(d for d in RBAC if identity(d) == (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]))
        for binding in RBAC
        if binding["kind"].endswith("Binding")
        and identity(binding)[1] == namespace
        and any(who["name"] == account for who in binding["subjects"])
    ]
    said = []
    for rule in (rule for role in roles for rule in role["rules"]):
        only = f" {', '.join(rule['resourceNames'])}" if "resourceNames" in rule else ""
        said.append(f"{', '.join(rule['resources'])}{only}: {', '.join(rule['verbs'])}")
    return " · ".join(said) or "–"


@pytest.mark.parametrize("account", [d["metadata"]["name"] for d in RBAC if d["kind"] == "ServiceAccount"])
def test_the_readme_has_the_rights_of_every_account(account: str) -> None:
    page = (ROOT / "deploy" / "README.md").read_text(encoding="utf-8").splitlines()
    cells = [_rights(account, namespace) for namespace in ("", "default", "gameday")]
    assert f"| `{account}` | {' | '.join(cells)} |" in page


def test_every_object_is_there_once() -> None:
    identities = [identity(document) for _, document in ALL]
    assert len(identities) == len(set(identities))


@pytest.mark.parametrize("document", RBAC, ids=lambda document: "/".join(identity(document)))
def test_rules_name_real_resources_and_no_wildcards(document: dict[str, Any]) -> None:
    for rule in document.get("rules", []):
        for group in rule["apiGroups"]:
            for resource in rule["resources"]:
                plural, _, sub = resource.partition("/")
                served = SERVED[(group, plural)]
                subresource = served.subresource(sub)
                known = subresource.verbs if subresource else () if sub else served.verbs
                assert set(rule["verbs"]) <= set(known), (resource, rule["verbs"])


def test_bindings_bind_what_exists_to_accounts_that_exist() -> None:
    identities = {identity(document) for document in RBAC}
    for binding in (d for d in RBAC if d["kind"].endswith("Binding")):
        namespace = binding["metadata"].get("namespace", "")
        assert (binding["roleRef"]["kind"], namespace, binding["roleRef"]["name"]) in identities
        for subject in binding["subjects"]:
            assert ("ServiceAccount", subject["namespace"], subject["name"]) in identities


def test_the_agent_has_no_rights_and_no_token() -> None:
    (agent,) = (account for account in of("ServiceAccount") if account["metadata"]["name"] == "gameday-agent")
    assert agent["automountServiceAccountToken"] is False
    assert _granted("gameday-agent") == set()


def test_nobody_may_read_secrets_or_give_rights_away() -> None:
    for account in ("gameday-runner", "gameday-node-health", "gameday-reaper", "gameday-repair"):
        resources = {resource.partition("/")[0] for _, _, resource, _ in _granted(account)}
        assert not resources & {
            "secrets",
            "serviceaccounts",
            "roles",
            "rolebindings",
            "clusterroles",
            "clusterrolebindings",
        }


def test_the_runner_may_write_only_nodes_and_evictions_outside_its_namespace() -> None:
    reads = {"get", "list", "watch"}
    writes = {(resource, verb) for ns, _, resource, verb in _granted("gameday-runner") if not ns and verb not in reads}
    assert writes == {("nodes", "patch"), ("pods/eviction", "create"), ("selfsubjectaccessreviews", "create")}


def test_the_controller_touches_nodes_their_events_its_own_cursor_and_its_own_lease_only() -> None:
    assert {(ns, resource) for ns, _, resource, _ in _granted("gameday-node-health")} == {
        ("", "nodes"),
        ("default", "events"),
        ("gameday", "configmaps"),
        ("gameday", "leases"),
    }
    role = next(d for d in RBAC if identity(d) == ("Role", "gameday", "gameday-node-health"))
    unnamed = {(rule["resources"][0], *rule["verbs"]) for rule in role["rules"] if "resourceNames" not in rule}
    assert unnamed == {("leases", "create")}
    named = {rule["resources"][0]: rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule}
    assert named == {"configmaps": ["gameday-health"], "leases": [LEADING_CONTROLLER]}


def test_only_who_may_create_pods_may_create_a_ledger() -> None:
    accounts = {d["metadata"]["name"] for d in RBAC if d["kind"] == "ServiceAccount"}
    may = {
        resource: {account for account in accounts if ("gameday", "", resource, "create") in _granted(account)}
        for resource in ("configmaps", "pods")
    }
    assert may["configmaps"] == {"gameday-runner", "gameday-repair"} <= may["pods"]


def test_the_controllers_memory_is_made_with_its_account_and_applying_it_again_keeps_it() -> None:
    memory = next(d for d in RBAC if identity(d) == ("ConfigMap", "gameday", "gameday-health"))
    assert "data" not in memory


def test_the_repairer_may_write_only_nodes_and_evictions_outside_its_namespace() -> None:
    reads = {"get", "list", "watch"}
    granted = _granted("gameday-repair")
    writes = {(ns, resource, verb) for ns, _, resource, verb in granted if ns != "gameday" and verb not in reads}
    assert writes == {("", "nodes", "patch"), ("", "pods/eviction", "create"), ("default", "events", "create")}


_CALL = re.compile(r"\.(?:core|batch|coordination)\.([a-z]+)_(namespaced_)?([a-z_]+)\b")
_VERBS = {"read": "get", "replace": "update"}
_SUFFIXES = {"_log": "log", "_eviction": "eviction", "_status": "status"}
_PLURALS = {"config_map": ("", "configmaps"), "job": ("batch", "jobs"), "lease": ("coordination.k8s.io", "leases")}


def _calls(*folders: str) -> set[tuple[str, str, str, str]]:
    """What the official client is asked for in our source, as (namespace, group, resource, verb)."""
    source = "\n".join(p.read_text(encoding="utf-8") for folder in folders for p in (ROOT / folder).rglob("*.py"))
    found = set()
    for verb, namespaced, noun in _CALL.findall(source):
        everywhere = noun.endswith("_for_all_namespaces")
        kind = noun.removesuffix("_for_all_namespaces")
        sub = next((name for suffix, name in _SUFFIXES.items() if kind.endswith(suffix)), "")
        kind = kind.removesuffix(f"_{sub}") if sub else kind
        group, plural = _PLURALS.get(kind, ("", f"{kind}s"))
        own = "default" if kind == "event" else "gameday"  # Events about nodes are in `default`
        namespace = own if namespaced and not everywhere and sub != "eviction" else ""
        found.add((namespace, group, f"{plural}/{sub}" if sub else plural, _VERBS.get(verb, verb)))
    return found


def test_the_runner_is_granted_every_call_that_our_code_makes() -> None:
    calls = _calls("gameday/cluster", "gameday/ledger", "gameday/run", "gameday/guard", "tasks", "flows")
    assert ("", "", "nodes", "patch") in calls
    assert ("gameday", "", "pods", "create") in calls
    granted = _granted("gameday-runner")
    assert {call for call in calls if call not in granted and ("", *call[1:]) not in granted} == set()


def test_the_reaper_is_granted_every_call_of_the_ledger_but_making_one() -> None:
    missing = _calls("gameday/ledger") - _granted("gameday-reaper")
    assert missing == {("gameday", "", "configmaps", "create")}
