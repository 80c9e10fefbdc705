"""Discovery documents, and the little OpenAPI that kubectl looks at before it applies."""

from __future__ import annotations

from functools import cache
from typing import Any

from kubesim.apiserver.resources import GROUP_VERSIONS, RESOURCES, UNSERVED, Resource

Json = dict[str, Any]

# The imitated release; the lab builds the same one.
VERSION: Json = {
    "major": "1",
    "minor": "37",
    "emulationMajor": "1",
    "emulationMinor": "37",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "36",
    "gitVersion": "v1.37.1+kubesim",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "python",
    "platform": "linux/amd64",
}


def api_versions(address: str) -> Json:
    """Return the answer to GET /api."""
    addresses = [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}]
    return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": addresses}


def _group(group: str, version: str) -> Json:
    served = {"groupVersion": f"{group}/{version}", "version": version}
    return {"name": group, "versions": [served], "preferredVersion": served}


@cache
def group_list() -> Json:
    """Return the answer to GET /apis."""
    groups = [_group(group, version) for group, version in GROUP_VERSIONS if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def group(name: str) -> Json | None:
    """Return the answer to GET /apis/{group}; None if the group is not served."""
    for found, version in GROUP_VERSIONS:
        if found == name and name:
            return {"kind": "APIGroup", "apiVersion": "v1", **_group(found, version)}
    return None


def resource_list(group: str, version: str) -> Json | None:
    """Return the answer to GET /api/v1 or /apis/{group}/{version}; None if that is not served."""
    if (group, version) not in GROUP_VERSIONS:
        return None
    entries: list[Json] = []
    for resource in (*RESOURCES, *UNSERVED):
        if (resource.group, resource.version) == (group, version):
            entries.append(_legacy(resource))
            entries += [_legacy_sub(resource, sub.name) for sub in resource.all_subresources]
    shown = f"{group}/{version}" if group else version
    found: Json = {"kind": "APIResourceList", "groupVersion": shown, "resources": entries}
    # The core group's list has no apiVersion, for clients older than groups.
    return {**found, "apiVersion": "v1"} if group else found


def _legacy(resource: Resource) -> Json:
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": list(resource.verbs),
    }
    if resource.short:
        entry["shortNames"] = list(resource.short)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    return entry


def _legacy_sub(resource: Resource, name: str) -> Json:
    sub = resource.subresource(name)
    assert sub is not None
    entry: Json = {"name": f"{resource.plural}/{name}", "singularName": "", "namespaced": resource.namespaced}
    if sub.version:
        entry |= {"group": sub.group, "version": sub.version}
    return entry | {"kind": sub.kind, "verbs": list(sub.verbs)}


def openapi_root() -> Json:
    """Return the answer to GET /openapi/v3."""
    paths = {}
    for group_name, version in GROUP_VERSIONS:
        path = f"apis/{group_name}/{version}" if group_name else f"api/{version}"
        paths[path] = {"serverRelativeURL": f"/openapi/v3/{path}"}
    return {"paths": paths}


def openapi(group_name: str, version: str) -> Json | None:
    """Return the answer to GET /openapi/v3/…: that patches take fieldValidation and dryRun, which kubectl checks.

    It has no schemas: clients fall back to the types they are built with.
    """
    if (group_name, version) not in GROUP_VERSIONS:
        return None
    root = f"/apis/{group_name}/{version}" if group_name else f"/api/{version}"
    parameters = [
        {"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": True}}
        for name in ("dryRun", "fieldManager", "fieldValidation", "force")
    ]
    paths: Json = {}
    for resource in RESOURCES:
        if (resource.group, resource.version) != (group_name, version) or not resource.is_stored:
            continue
        space = "/namespaces/{namespace}" if resource.namespaced else ""
        gvk = {"group": group_name, "version": version, "kind": resource.kind}
        patch = {
            "parameters": parameters,
            "responses": {"200": {"description": "OK"}},
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": gvk,
        }
        paths[f"{root}{space}/{resource.plural}/{{name}}"] = {"patch": patch}
    info = {"title": "Kubernetes", "version": VERSION["gitVersion"]}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": {}}}
