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
        found = [one for one in body["resources"] if _served(group, version, one["name"])]
        for one in found:
            one.pop("storageVersionHash", None)
        return {**body, "resources": by_name(found)}

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
def documents(c: Client) -> None:
    anybody = c.anonymous()
    for path in ("/healthz", "/livez", "/readyz", "/readyz/nonsense"):
        c.get(f"health {path}", path)
    c.get("health, by anybody", "/readyz", only=lambda text: text)
    anybody.get("health without credentials", "/livez")
    c.get(
        "the version",
        "/version",
        only=lambda body: {**dict.fromkeys(body), "major": body["major"], "minor": body["minor"]},
    )
    c.get("the version with a slash", "/version/", only=sorted)
    anybody.get("the version without credentials", "/version", only=sorted)
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
