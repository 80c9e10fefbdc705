"""Pages, and the versions at which a list may be asked for."""

from __future__ import annotations

from typing import Any

from tests.kubesim.conformance.exchange import Client
from tests.kubesim.conformance.scripts import script

_TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


def _summary(body: Any) -> Any:
    """Names and the list's metadata; failures whole."""
    if "items" not in body:
        return body
    return {"metadata": body["metadata"], "items": [item["metadata"]["name"] for item in body["items"]]}


def _six(c: Client) -> str:
    configmaps = f"/api/v1/namespaces/{c.ns}/configmaps"
    for number in range(6):
        half = "low" if number < 3 else "high"
        c.do("POST", configmaps, {"metadata": {"name": f"m-{number}", "labels": {"half": half}}})
    return configmaps


@script
def pages(c: Client) -> None:
    configmaps = _six(c)
    first = c.get("first page", configmaps, {"limit": "4"}, only=_summary).body["metadata"]["continue"]
    c.do("POST", configmaps, {"metadata": {"name": "a-late"}})
    c.do("POST", configmaps, {"metadata": {"name": "m-7"}})
    c.do("DELETE", f"{configmaps}/m-5")
    c.get("second page shows the first one's moment", configmaps, {"limit": "4", "continue": first}, only=_summary)
    c.get("second page without a limit", configmaps, {"continue": first}, only=_summary)
    c.get("second page, smaller", configmaps, {"limit": "1", "continue": first}, only=_summary)
    c.get("the list since then", configmaps, only=_summary)
    c.get("a limit that is just enough", configmaps, {"limit": "8"}, only=_summary)
    c.get("a limit that is more than enough", configmaps, {"limit": "500"}, only=_summary)
    c.get("limit 0", configmaps, {"limit": "0"}, only=_summary)
    selected = {"limit": "2", "labelSelector": "half=low"}
    more = c.get("first page of a selection", configmaps, selected, only=_summary).body["metadata"]["continue"]
    c.get("second page of a selection", configmaps, {**selected, "continue": more}, only=_summary)
    query = {"limit": "3", "labelSelector": "half=low"}
    c.get("a selection that just fits", configmaps, query, only=_summary)
    by_field = {"limit": "1", "fieldSelector": "metadata.name=m-0"}
    c.get("one name", configmaps, by_field, only=_summary)
    c.get("a limit and version 0", configmaps, {"limit": "2", "resourceVersion": "0"}, only=_summary)
    c.get("a negative limit", configmaps, {"limit": "-1"}, only=_summary)
    c.get("a limit that is no number", configmaps, {"limit": "few"}, only=_summary)
    c.get("a limit that is too large a number", configmaps, {"limit": "99999999999999999999"}, only=_summary)


@script
def continues(c: Client) -> None:
    configmaps = _six(c)
    token = c.get("first page", configmaps, {"limit": "2"}, only=_summary).body["metadata"]["continue"]
    c.get("a token cut short", configmaps, {"limit": "2", "continue": token[:-8]}, only=lambda body: body["reason"])
    c.get("a token with a version", configmaps, {"continue": token, "resourceVersion": "1"})
    c.get("a token with version 0", configmaps, {"continue": token, "resourceVersion": "0"})
    both = {"continue": token, "resourceVersion": "1", "resourceVersionMatch": "Exact"}
    c.get("a token with a version and a match", configmaps, both)
    c.get("a token with a match", configmaps, {"continue": token, "resourceVersionMatch": "NotOlderThan"})
    c.get("an empty token", configmaps, {"continue": "", "limit": "2"}, only=_summary)


@script
def list_versions(c: Client) -> None:
    configmaps = _six(c)
    old = c.do("GET", configmaps)["metadata"]["resourceVersion"]
    c.do("DELETE", f"{configmaps}/m-0")
    middle = c.do("POST", configmaps, {"metadata": {"name": "m-9"}})["metadata"]["resourceVersion"]
    c.get("the whole list", configmaps, {"labelSelector": "half"})

    def ask(step: str, version: str | None, match: str | None, **more: str) -> None:
        query = {"resourceVersion": version, "resourceVersionMatch": match, **more}
        c.get(step, configmaps, {key: value for key, value in query.items() if value is not None}, only=_summary)

    ask("no version", None, None)
    ask("version 0", "0", None)
    ask("version 0, not older", "0", "NotOlderThan")
    ask("version 0, exact", "0", "Exact")
    ask("an old version", old, None)
    ask("an old version, not older", old, "NotOlderThan")
    ask("an old version, exact", old, "Exact")
    ask("an old version, exact, in pages", old, "Exact", limit="2")
    ask("an old version, in pages", old, None, limit="2")
    ask("a version, exact", middle, "Exact")
    ask("a match without a version", None, "Exact")
    ask("not older without a version", None, "NotOlderThan")
    ask("an empty version and a match", "", "NotOlderThan")
    ask("no such match", old, "Nonsense")
    ask("no such match without a version", None, "Nonsense")
    ask("a malformed version", "abc", None)
    ask("a malformed version, not older", "abc", "NotOlderThan")
    ask("a malformed version, exact", "abc", "Exact")
    ask("a negative version", "-1", None)
    ask("a version to come", "999999999", None)
    ask("a version to come, not older", "999999999", "NotOlderThan")
    ask("a version to come, exact", "999999999", "Exact")
    ask("a version to come, in pages", "999999999", None, limit="2")
    ask("initial events of a list", None, None, sendInitialEvents="true")
    ask("a timeout of a list", None, None, timeoutSeconds="5")
    ask("a malformed timeout", None, None, timeoutSeconds="soon")
    ask("a parameter that does not exist", None, None, nonsense="1")
    by_name = {"fieldSelector": "metadata.name=m-9"}
    c.get("a version to come by name", configmaps, {**by_name, "resourceVersion": "999999999"})


@script
def expired(c: Client) -> None:
    configmaps = _six(c)
    page = c.do("GET", f"{configmaps}?limit=2")["metadata"]
    old, token = page["resourceVersion"], page["continue"]
    c.do("POST", configmaps, {"metadata": {"name": "m-9"}})
    c.do("DELETE", f"{configmaps}/m-3")
    c.forget()
    rest = c.get("the rest of a list", configmaps, {"continue": token, "limit": "2"})
    inconsistent = rest.body["metadata"].get("continue", "")
    c.get("the rest of a list as it is now", configmaps, {"continue": inconsistent, "limit": "2"}, only=_summary)
    c.get("an exact version", configmaps, {"resourceVersion": old, "resourceVersionMatch": "Exact"})
    c.get("pages of a version", configmaps, {"resourceVersion": old, "limit": "2"})
    c.get(
        "not older than a version",
        configmaps,
        {"resourceVersion": old, "resourceVersionMatch": "NotOlderThan"},
        only=_summary,
    )
    c.watch("a watch", configmaps, {"resourceVersion": old, "timeoutSeconds": "5"})
    c.watch("a watch as a table", configmaps, {"resourceVersion": old, "timeoutSeconds": "5"}, headers=_TABLE)
    c.watch("a watch from version 1", configmaps, {"resourceVersion": "1", "timeoutSeconds": "5"})
    fresh = {"resourceVersionMatch": "NotOlderThan", "resourceVersion": old, "sendInitialEvents": "true"}
    c.watch("initial events of a version", configmaps, {**fresh, "fieldSelector": "metadata.name=m-9"}, until=1)
