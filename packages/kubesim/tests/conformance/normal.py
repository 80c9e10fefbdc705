"""Takes out of a recording what two runs of one server would not share, and nothing else, so that no wrong field hides.

Replaced: uids, resourceVersions (by their rank, so that their order still counts), times of the run, continue tokens,
generated names, bearer tokens, certificates, the server's address, ages in tables. The columns' descriptions, which are
prose for people, are dropped, and so is what kubesim says of things that it does not simulate.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import Any

Json = dict[str, Any]

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
_TIME = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?P<micro>\.\d+)?Z")
_TOKEN = re.compile(r"\beyJ[\w-]+\.eyJ[\w-]+\.[\w-]+")
_CERTIFICATE = re.compile(r"-----BEGIN CERTIFICATE-----.*-----END CERTIFICATE-----\n?", re.DOTALL)
# The volume of a service account's token.
_TOKEN_VOLUME = re.compile(r"\bkube-api-access-[a-z0-9]{5}\b")
# "current: 57" of a version in the future, "(57)" of one too old, and those of failed preconditions.
_MESSAGE_VERSION = re.compile(
    r"(?<=, current: )\d+|(?<=ResourceVersion in record \()\d+|(?<=ResourceVersion in object meta: )\d+"
    r"|(?<=too old resource version: )(?P<asked>\d+) \(\d+\)"
)
# What kubesim says of what it does not simulate, among a response's warnings and in kubectl's output.
_NOT_SIMULATED = "is not simulated by kubesim"
_WARNING = re.compile(r'299 - "(?:[^"\\]|\\.)*"')
# Versions that a script makes up are 0, 1 or beyond whatever a server reaches during the suite.
_MADE_UP = 100_000_000
_AGE = re.compile(r"^(\d+[smhdy]){1,2}$")
_AGO = re.compile(r"\((\d+[smhdy]){1,2} ago\)")
_AGE_COLUMNS = frozenset({"Age", "Last Seen", "First Seen", "Last Schedule"})


def normal(exchanges: list[Json], address: str, namespace: str) -> list[Json]:
    """Return the recording of one script without what differs from run to run.

    Args:
        exchanges: As the script's client recorded them.
        address: The server's URL.
        namespace: The script's own; it is written <ns>.
    """
    # Sorted: uids are numbered in the order in which they are met.
    found: list[Json] = json.loads(json.dumps(exchanges, sort_keys=True))
    found = [{name: exchange[name] for name in ("step", "request", "response")} for exchange in found]
    for exchange in found:
        _notices(exchange["response"])
        _tables(exchange["response"])
        _continues(exchange)
    _versions(found)
    literals = {text for exchange in found for text in _strings(exchange["request"])}
    replace = _Words(
        literals, _generated_names(found), {address.removeprefix("https://"): "<server>", namespace: "<ns>"}
    )
    return [_mapped(exchange, replace) for exchange in found]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield key
            yield from _strings(part)
    elif isinstance(value, list):
        for part in value:
            yield from _strings(part)


def _dicts(value: Any) -> Iterator[Json]:
    if isinstance(value, dict):
        yield value
        for part in value.values():
            yield from _dicts(part)
    elif isinstance(value, list):
        for part in value:
            yield from _dicts(part)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _mapped(part, change) for key, part in value.items()}
    if isinstance(value, list):
        return [_mapped(part, change) for part in value]
    return value


class _Words:
    """Replaces inside strings; times that the script itself wrote stay."""

    def __init__(self, literals: set[str], generated: dict[str, str], places: dict[str, str]) -> None:
        self._written = {match[0] for text in literals for match in _TIME.finditer(text)}
        self._plain = generated | places
        self._uids: dict[str, str] = {}

    def __call__(self, text: str) -> str:
        for name, shown in self._plain.items():
            text = text.replace(name, shown)
        text = _CERTIFICATE.sub("<certificate>", text)
        text = _TOKEN_VOLUME.sub("kube-api-access-<5 generated>", text)
        text = _TOKEN.sub("<token>", text)
        text = _MESSAGE_VERSION.sub(_message_version, text)
        text = _TIME.sub(self._time, text)
        return _UUID.sub(lambda match: self._uids.setdefault(match[0], f"<uid {len(self._uids) + 1}>"), text)

    def _time(self, match: re.Match[str]) -> str:
        if match[0] in self._written:
            return match[0]
        return "<microtime>" if match["micro"] else "<time>"


def _message_version(match: re.Match[str]) -> str:
    asked = match["asked"]
    if asked is None:
        return "<rv>"
    return f"{'<rv>' if 1 < int(asked) < _MADE_UP else asked} (<rv>)"


def _generated_names(exchanges: list[Json]) -> dict[str, str]:
    found: dict[str, str] = {}
    for part in _dicts([exchange["response"] for exchange in exchanges]):
        prefix, name = part.get("generateName"), part.get("name")
        if prefix and isinstance(name, str) and name.startswith(prefix):
            found.setdefault(name, f"{prefix}<{len(name) - len(prefix)} generated, {len(found) + 1}>")
    return found


def _notices(response: Json) -> None:
    """Take out the warnings that only kubesim gives."""
    headers = response.get("headers", {})
    if _NOT_SIMULATED in headers.get("Warning", ""):
        kept = [one for one in _WARNING.findall(headers.pop("Warning")) if _NOT_SIMULATED not in one]
        if kept:
            headers["Warning"] = ", ".join(kept)
    for stream in ("stdout", "stderr"):
        lines = [line for line in response.pop(stream, []) if _NOT_SIMULATED not in line]
        if lines:
            response[stream] = lines


def _continues(exchange: Json) -> None:
    for part in _dicts(exchange["response"]):
        if isinstance(part.get("metadata"), dict) and part["metadata"].get("continue"):
            part["metadata"]["continue"] = "<continue>"
    query = exchange["request"].get("query", {})
    # What a script makes up itself is short.
    if len(query.get("continue", "")) > 40:
        query["continue"] = "<continue>"


def _tables(response: Json) -> None:
    columns: list[str] = []
    for table in _dicts(response):
        if table.get("kind") != "Table":
            continue
        for column in table.get("columnDefinitions") or []:
            column.pop("description", None)
        columns = [column["name"] for column in table.get("columnDefinitions") or []] or columns
        for row in table.get("rows") or []:
            cells = row.get("cells") or []
            for index, (name, cell) in enumerate(zip(columns, cells, strict=False)):
                if name in _AGE_COLUMNS and isinstance(cell, str) and _AGE.match(cell):
                    cells[index] = "<age>"
                elif name == "Restarts" and isinstance(cell, str):
                    cells[index] = _AGO.sub("(<age> ago)", cell)


def _versions(exchanges: list[Json]) -> None:
    """Replace versions by their order.

    An object's version becomes rv#2: the second of all that the script saw. A list's or bookmark's, which may be
    anything from the last write on, becomes rv>=2, as do those in requests.
    """
    objects: list[tuple[Json, str]] = []
    lists: list[tuple[Json, str]] = []
    written = {text for exchange in exchanges for text in _strings(exchange["request"].get("body"))}
    for exchange in exchanges:
        collections = {id(part["metadata"]) for part in _dicts(exchange["response"]) if _is_list(part)}
        collections |= _bookmarks(exchange["response"])
        for part in _dicts(exchange["response"]):
            version = part.get("resourceVersion")
            if isinstance(version, str) and version.isdigit():
                if id(part) in collections:
                    lists.append((part, version))
                elif version not in written or "uid" in part:
                    objects.append((part, version))
    ranks = sorted({int(version) for _, version in objects})
    for part, version in objects:
        part["resourceVersion"] = f"rv#{bisect_right(ranks, int(version))}"
    for part, version in lists:
        part["resourceVersion"] = f"rv>={bisect_right(ranks, int(version))}"
    for part in _dicts([exchange["request"] for exchange in exchanges]):
        version = part.get("resourceVersion")
        if isinstance(version, str) and version.isdigit() and 1 < int(version) < _MADE_UP:
            part["resourceVersion"] = f"rv>={bisect_right(ranks, int(version))}"


def _is_list(part: Json) -> bool:
    return isinstance(part.get("metadata"), dict) and ("items" in part or "rows" in part)


def _bookmarks(response: Json) -> set[int]:
    """The metadata of bookmarks, also inside a bookmark's table."""
    found: set[int] = set()
    for event in response.get("events", []):
        if event.get("type") == "BOOKMARK":
            found |= {
                id(part["metadata"]) for part in _dicts(event["object"]) if isinstance(part.get("metadata"), dict)
            }
    return found
