"""The forms that a client accepts: JSON or YAML, an object, bare metadata or a table, and its layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import orjson
import yaml
from aiohttp import web

from kubesim.apiserver import errors

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
_MEDIA = (JSON, YAML, PROTOBUF)
_STREAMS = (f"{JSON};stream=watch", f"{PROTOBUF};stream=watch")
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
# Programs that people read the answers of.
_BROWSERS = ("curl", "Wget", "Mozilla/5.0")
_METADATA = ("PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True)
class AcceptedForm:
    """The accepted form: media type, the kind it is converted to ("" for none) and that kind's version."""

    media: str = JSON
    kind: str = ""
    version: str = "v1"


@dataclass(frozen=True)
class _Clause:
    media: str
    quality: float
    parameters: Mapping[str, str]

    def matches(self, media: str) -> bool:
        return self.media in (media, "*/*", "application/*")


def negotiate(request: web.BaseRequest, *, streamed: bool = False) -> AcceptedForm:
    """Return the form that the Accept header prefers among those offered. Raises StatusError 406.

    `streamed`: a watch, which has no YAML.
    """
    header = request.headers.get("Accept", "")
    if not header:
        return AcceptedForm()
    for clause in _clauses(header):
        for media in (JSON, YAML):
            if clause.matches(media) and not (streamed and media == YAML):
                found = _form(clause, media)
                if found is not None:
                    return found
    if any(clause.media == PROTOBUF and "as" not in clause.parameters for clause in _clauses(header)):
        raise errors.not_acceptable(f"this server writes no protobuf: accept {JSON} as well")
    offered = _STREAMS if streamed else _MEDIA
    raise errors.not_acceptable(f"only the following media types are accepted: {', '.join(offered)}")


def check_offered(request: web.BaseRequest, *, collection: bool = False) -> None:
    """Refuse (406) a request none of whose media types is offered at all, whatever their parameters."""
    header = request.headers.get("Accept", "")
    offered = _MEDIA + _STREAMS if collection else _MEDIA
    if header and not any(part.partition(";")[0].strip() in (*_MEDIA, "*/*") for part in header.split(",")):
        # The router's words, which are not those of the negotiation behind it.
        message = f"406: Not Acceptable\n\nAvailable representations: {', '.join(offered)}"
        raise errors.not_acceptable(message, {})


def _clauses(header: str) -> Iterator[_Clause]:
    """The clauses of an Accept header, best first."""
    found: list[_Clause] = []
    for part in header.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        if media.count("/") != 1:
            continue
        parameters = {key.strip(): value.strip() for key, _, value in (piece.partition("=") for piece in rest)}
        found.append(_Clause(media, _quality(parameters.pop("q", "1")), parameters))
    yield from sorted(found, key=lambda clause: (-clause.quality, clause.media.count("*")))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _form(clause: _Clause, media: str) -> AcceptedForm | None:
    """The clause's form in that media type; None when it asks for what nobody can make of it."""
    kind, group, version = (clause.parameters.get(name, "") for name in ("as", "g", "v"))
    if clause.parameters.get("stream", "watch") not in ("", "watch"):
        return None
    if not (kind or group or version):
        return AcceptedForm(media)
    if group != "meta.k8s.io" or version not in ("v1", "v1beta1") or kind not in ("Table", *_METADATA):
        return None
    return AcceptedForm(media, kind, version)


def reformatted(request: web.BaseRequest, response: web.Response) -> web.Response:
    """A JSON answer as the client wants to see it: as YAML, indented, or as it is."""
    if response.content_type != JSON or not isinstance(response.body, bytes):
        return response
    clauses = list(_clauses(request.headers.get("Accept", "")))
    first = next((media for clause in clauses for media in (JSON, YAML) if clause.matches(media)), JSON)
    if first == YAML:
        content = yaml.dump(orjson.loads(response.body), Dumper=yaml.CSafeDumper, allow_unicode=True)
        response.body = content.encode()
        response.headers["Content-Type"] = YAML
    elif _pretty(request, clauses):
        response.body = orjson.dumps(orjson.loads(response.body), option=orjson.OPT_INDENT_2)
    return response


def _pretty(request: web.BaseRequest, clauses: list[_Clause]) -> bool:
    if clauses and clauses[0].parameters.get("pretty") == "1":
        return True
    asked = request.query.get("pretty", "")
    return asked in _TRUE if asked else request.headers.get("User-Agent", "").startswith(_BROWSERS)
