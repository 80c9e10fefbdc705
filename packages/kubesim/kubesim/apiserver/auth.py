"""Authentication: static bearer tokens, service-account tokens (HS256 JWT), impersonation headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from kubesim.apiserver.store import Store
from kubesim.private_file import write_private

Json = dict[str, Any]
MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
_ISSUER = "https://kubernetes.default.svc.cluster.local"
API_AUDIENCES = (_ISSUER,)
"""Audiences of the tokens that are accepted here."""
_CREDENTIAL = "authentication.kubernetes.io/credential-id"
DEFAULT_TOKEN_S = 3600
_BOUND = {"pod": "pods", "secret": "secrets"}
"""Claims that bind a token to an object of the account's namespace: the token ends with the object."""


@dataclass(frozen=True)
class User:
    """An authenticated caller."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def info(self) -> Json:
        """The UserInfo that reviews return."""
        found: Json = {"username": self.name}
        if self.uid:
            found["uid"] = self.uid
        if self.groups:
            found["groups"] = list(self.groups)
        if self.extra:
            found["extra"] = {key: list(values) for key, values in self.extra.items()}
        return found


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def service_account_groups(namespace: str) -> tuple[str, ...]:
    """Return the groups of every service account of the namespace."""
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED)


def _b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def _unb64(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


class Authenticator:
    """Turns an Authorization header into a User. Static tokens: {token: {"user", "groups"}}."""

    def __init__(self, store: Store, static: Mapping[str, Json], key: bytes) -> None:
        self._store = store
        self._key = key
        self._static = {
            token: User(entry["user"], (*entry.get("groups", ()), AUTHENTICATED)) for token, entry in static.items()
        }

    def user(self, authorization: str) -> User | None:
        """Return the caller with this Authorization header: ANONYMOUS without a token, None for a wrong one."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return ANONYMOUS
        token = token.strip()
        if token in self._static:
            return self._static[token]
        claims = self._claims(token)
        return self._service_account(claims) if claims and {*API_AUDIENCES} & {*claims["aud"]} else None

    def issue(self, account: Json, audiences: list[str], seconds: int, bound: Json | None) -> tuple[str, int]:
        """Return a token for a stored ServiceAccount, and its expiry in epoch seconds."""
        now = int(time.time())
        meta = account["metadata"]
        claims: Json = {"namespace": meta["namespace"], "serviceaccount": {"name": meta["name"], "uid": meta["uid"]}}
        if bound:
            claims[bound.get("kind", "Pod").lower()] = {"name": bound.get("name"), "uid": bound.get("uid")}
        payload = {
            "aud": audiences or [*API_AUDIENCES],
            "exp": now + seconds,
            "iat": now,
            "nbf": now,
            "iss": _ISSUER,
            "jti": str(uuid.uuid4()),
            "kubernetes.io": claims,
            "sub": f"system:serviceaccount:{meta['namespace']}:{meta['name']}",
        }
        head = _b64(orjson.dumps({"alg": "HS256", "typ": "JWT"}))
        signed = f"{head}.{_b64(orjson.dumps(payload))}"
        return f"{signed}.{_b64(self._signature(signed))}", now + seconds

    def _signature(self, signed: str) -> bytes:
        return hmac.new(self._key, signed.encode(), hashlib.sha256).digest()

    def _claims(self, token: str) -> Json | None:
        """Return the claims of a token of ours; None for any other, or for one outside its time."""
        signed, _, signature = token.rpartition(".")
        try:
            if not signed or not hmac.compare_digest(_unb64(signature), self._signature(signed)):
                return None
            payload: Json = orjson.loads(_unb64(signed.split(".")[1]))
        except (ValueError, IndexError):
            return None
        return payload if payload["exp"] >= time.time() else None

    def _service_account(self, payload: Json) -> User | None:
        claims = payload["kubernetes.io"]
        namespace, account = claims["namespace"], claims["serviceaccount"]
        stored = self._store.get("serviceaccounts", namespace, account["name"])
        if stored is None or stored.obj["metadata"]["uid"] != account["uid"]:
            return None
        if not all(
            self._is_there(plural, namespace, claims[kind]) for kind, plural in _BOUND.items() if kind in claims
        ):
            return None
        extra = {_CREDENTIAL: (f"JTI={payload['jti']}",)}
        if "pod" in claims:
            pod = {part: (claims["pod"][part],) for part in ("name", "uid")}
            extra |= {f"authentication.kubernetes.io/pod-{part}": value for part, value in pod.items()}
        return User(payload["sub"], service_account_groups(namespace), account["uid"], extra)

    def _is_there(self, plural: str, namespace: str, bound: Json) -> bool:
        """Return True if the object that a token is bound to still exists, and is not another one with its name."""
        stored = self._store.get(plural, namespace, bound["name"])
        return stored is not None and stored.obj["metadata"]["uid"] == bound["uid"]


def load_key(path: Path) -> bytes:
    """Return the signing key of service-account tokens, which is made on first use."""
    if not path.exists():
        write_private(path, secrets.token_bytes(32))
    return path.read_bytes()
