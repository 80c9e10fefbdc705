"""The forms that a client accepts: an object, only its metadata, or a table, all as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aiohttp import web

from kubesim.apiserver import errors
from kubesim.unsimulated import sentence

_JSON = ("application/json", "application/*", "*/*")
_KINDS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")


@dataclass(frozen=True)
class AcceptedForm:
    """The accepted form: the kind and version that an object is converted to (empty for none)."""

    kind: str = ""
    version: str = "v1"


@dataclass(frozen=True)
class _Clause:
    media: str
    quality: float
    parameters: Mapping[str, str]


def negotiate(request: web.BaseRequest) -> AcceptedForm:
    """Return the form that the Accept header prefers among those of JSON. Raises StatusError 406."""
    header = request.headers.get("Accept", "")
    if not header:
        return AcceptedForm()
    for clause in _clauses(header):
        found = _form(clause) if clause.media in _JSON else None
        if found is not None:
            return found
    raise errors.not_acceptable(sentence(f"an answer as {header}"))


def _clauses(header: str) -> Iterator[_Clause]:
    """Yield the clauses of an Accept header, best first."""
    found: list[_Clause] = []
    for part in header.split(","):
        media, *rest = (piece.strip() for piece in part.split(";"))
        parameters = {key.strip(): value.strip() for key, _, value in (piece.partition("=") for piece in rest)}
        found.append(_Clause(media, _quality(parameters.pop("q", "1")), parameters))
    yield from sorted(found, key=lambda clause: (-clause.quality, clause.media.count("*")))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def _form(clause: _Clause) -> AcceptedForm | None:
    """Return the clause's form; None if an object has no such form."""
    kind, group, version = (clause.parameters.get(name, "") for name in ("as", "g", "v"))
    if clause.parameters.get("stream", "watch") not in ("", "watch"):
        return None
    if not (kind or group or version):
        return AcceptedForm()
    if group != "meta.k8s.io" or version not in ("v1", "v1beta1") or kind not in _KINDS:
        return None
    return AcceptedForm(kind, version)
