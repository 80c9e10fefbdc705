"""Discovery, health, version and OpenAPI: what clients read before they do anything.

The embedded server serves a part of the real one's kinds; what both serve must be described in the same words.
"""

from __future__ import annotations

import json
from typing import Any

from kubesim.apiserver.resources import BY_PATH, GROUP_VERSIONS
from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script

Json = dict[str, Any]
_GROUPS = sorted({group for group, _ in GROUP_VERSIONS})
_AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def _served(group: str, version: str, name: str) -> bool:
    plural, _, sub = name.partition("/")
    resource = BY_PATH.get((group, version, plural))
    return resource is not None and (not sub or resource.subresource(sub) is not None)


@script
def legacy_discovery(c: Client) -> None:
    def by_name(found: list[Json]) -> list[Json]:
        return sorted(found, key=lambda entry: str(entry["name"]))

    def groups(body: Json) -> Json:
        """Those that both have, each with the version that both have."""
        found = [group for group in body["groups"] if group["name"] in _GROUPS]
        for group in found:
            group["versions"] = [entry for entry in group["versions"] if entry["version"] == "v1"]
        return {**body, "groups": by_name(found)}

    def resources(body: Json) -> Json:
        group, _, version = body["groupVersion"].rpartition("/")
        return {
            **body,
            "resources": by_name([one for one in body["resources"] if _served(group, version, one["name"])]),
        }

    def the_others(body: Json) -> list[str]:
        group, _, version = body["groupVersion"].rpartition("/")
        return sorted(one["name"] for one in body["resources"] if not _served(group, version, one["name"]))

    c.get("core versions", "/api")
    c.get("groups", "/apis", only=groups)
    c.get(
        "groups, the others",
        "/apis",
        only=lambda body: sorted({group["name"] for group in body["groups"]} - {*_GROUPS}),
    )
    for group in filter(None, _GROUPS):
        c.get(f"group {group}", f"/apis/{group}", only=lambda body: groups({"groups": [body]})["groups"][0])
    for group, version in GROUP_VERSIONS:
        path = f"/apis/{group}/{version}" if group else f"/api/{version}"
        c.get(f"resources of {group or 'core'}", path, only=resources)
        c.get(f"resources of {group or 'core'}, the others", path, only=the_others)


@script
def aggregated_discovery(c: Client) -> None:
    def kept(body: Json) -> Json:
        items = []
        for item in sorted(body["items"], key=lambda item: str(item["metadata"].get("name", ""))):
            group = item["metadata"].get("name", "")
            if group not in _GROUPS:
                continue
            for version in item["versions"]:
                known = [one for one in version["resources"] if _served(group, version["version"], one["resource"])]
                for one in known:
                    subs = [
                        sub
                        for sub in one.get("subresources", [])
                        if _served(group, version["version"], f"{one['resource']}/{sub['subresource']}")
                    ]
                    if subs:
                        one["subresources"] = sorted(subs, key=lambda sub: str(sub["subresource"]))
                    else:
                        one.pop("subresources", None)
                version["resources"] = sorted(known, key=lambda one: str(one["resource"]))
            item["versions"] = [version for version in item["versions"] if version["version"] == "v1"]
            items.append(item)
        return {**body, "items": items}

    def shape(body: Json) -> Json:
        return {key: value for key, value in body.items() if key != "items"}

    c.get("core", "/api", headers={"Accept": _AGGREGATED}, only=kept)
    c.get("groups", "/apis", headers={"Accept": _AGGREGATED}, only=kept)
    both = f"{_AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
    c.get("as kubectl asks", "/apis", headers={"Accept": both}, only=shape)
    beta = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
    c.get("only the beta version", "/apis", headers={"Accept": beta}, only=lambda body: body["kind"])
    c.get(
        "one group",
        "/apis/batch",
        headers={"Accept": f"{_AGGREGATED},application/json"},
        only=lambda body: body["kind"],
    )
    c.get("as YAML", "/api", headers={"Accept": "application/yaml"}, only=lambda body: body["kind"])
    c.get(
        "resources as YAML", "/apis/policy/v1", headers={"Accept": "application/yaml"}, only=lambda body: body["kind"]
    )
    c.get("only XML", "/apis", headers={"Accept": "application/xml"})


@script
def documents(c: Client) -> None:
    anybody = c.anonymous()
    for path in ("/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/nonsense", "/healthz/ping"):
        c.get(f"health {path}", path)
    c.get("health in full", "/readyz", {"verbose": ""}, only=lambda text: [text.splitlines()[0], text.splitlines()[-1]])
    c.get("health, by anybody", "/readyz", only=lambda text: text)
    anybody.get("health without credentials", "/livez")
    anybody.get("a part of health without credentials", "/livez/ping")
    c.get(
        "the version",
        "/version",
        only=lambda body: {**dict.fromkeys(body), "major": body["major"], "minor": body["minor"]},
    )
    c.get("the version with a slash", "/version/", only=sorted)
    anybody.get("the version without credentials", "/version", only=sorted)
    c.get("paths", "/", only=lambda body: [path for path in body["paths"] if path in _PATHS])
    c.get("a favicon", "/favicon.ico")
    c.send("health by POST", "POST", "/healthz", {})
    c.get(
        "OpenAPI v3's root",
        "/openapi/v3",
        raw=True,
        only=lambda text: [path for path in sorted(json.loads(text)["paths"]) if path in _PATHS],
    )
    c.get(
        "OpenAPI v3 of a group",
        "/openapi/v3/apis/policy/v1",
        only=lambda body: sorted(body["components"]["schemas"])[:3],
    )
    c.get("OpenAPI v3 of no group", "/openapi/v3/apis/nonsense/v1")
    c.get("OpenAPI v2", "/openapi/v2", only=lambda body: [body["swagger"], len(body["paths"]) > 100])


_PATHS = frozenset(
    {
        "/api",
        "/api/v1",
        "/apis",
        "/apis/batch/v1",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/readyz",
        "/version",
        "api/v1",
        "apis/batch/v1",
        "apis/policy/v1",
        *(f"/apis/{group}" for group in _GROUPS if group),
    }
)
