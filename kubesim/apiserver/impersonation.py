"""Impersonation headers: whom a caller may act as, by the constrained permissions or the old, unconstrained one.

The constrained ones (KEP-5284) are two: `impersonate-on:<mode>:<verb>` on what the request is about, and
`impersonate:<mode>` on the impersonated user. A refusal names the first permission that was missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from multidict import CIMultiDictProxy

from kubesim.apiserver.auth import (
    ANONYMOUS,
    AUTHENTICATED,
    MASTERS,
    UNAUTHENTICATED,
    User,
    service_account_groups,
)
from kubesim.apiserver.errors import bad_request
from kubesim.apiserver.rbac import Action, Rbac, denied

_EXTRA = "Impersonate-Extra-"
_AUTHN = "authentication.k8s.io"
_NODE = "system:node:"


def impersonated(rbac: Rbac, caller: User, action: Action, headers: CIMultiDictProxy[str]) -> User:
    """The user to act as: the caller where no header asks otherwise. Raises StatusError 400 or 403."""
    asked = User(
        headers.get("Impersonate-User", ""),
        tuple(headers.getall("Impersonate-Group", [])),
        headers.get("Impersonate-Uid", ""),
        _extra(headers),
    )
    if not asked.name:
        if asked.groups or asked.uid or asked.extra:
            raise bad_request(f"requested {_go_syntax(asked)} without impersonating a user name")
        return caller
    mode = _mode(asked)
    needed = [replace(action, verb=f"impersonate-on:{mode}:{action.verb}"), *_subjects(asked, mode)] if mode else []
    refusal = next((denied(caller, one) for one in needed if not rbac.decide(caller, one).allowed), None)
    if mode and not refusal and MASTERS not in asked.groups:
        return _complete(asked, constrained=True)
    for one in _subjects(asked):
        if not rbac.decide(caller, one).allowed:
            raise refusal or denied(caller, one)
    return _complete(asked)


def _extra(headers: CIMultiDictProxy[str]) -> dict[str, tuple[str, ...]]:
    names = {name.lower() for name in headers if name.lower().startswith(_EXTRA.lower())}
    return {name[len(_EXTRA) :]: tuple(headers.getall(name)) for name in sorted(names)}


def _go_syntax(asked: User) -> str:
    """The user as the real server's message shows it."""

    def strings(values: tuple[str, ...]) -> str:
        return "[]string{" + ", ".join(f'"{value}"' for value in values) + "}" if values else "[]string(nil)"

    pairs = ", ".join(f'"{key}":{strings(values)}' for key, values in asked.extra.items())
    extra = f"map[string][]string{{{pairs}}}" if pairs else "map[string][]string(nil)"
    groups = strings(asked.groups)
    return f'&user.DefaultInfo{{Name:"{asked.name}", UID:"{asked.uid}", Groups:{groups}, Extra:{extra}}}'


def _account(name: str) -> tuple[str, str] | None:
    """(namespace, name) of a service account's user name."""
    parts = name.split(":")
    return (parts[2], parts[3]) if len(parts) == 4 and name.startswith("system:serviceaccount:") else None


def _mode(asked: User) -> str:
    """The constrained mode that covers the user, "" where only the unconstrained permission does."""
    bare = not (asked.groups or asked.uid or asked.extra)
    if asked.name.startswith(_NODE):
        return "arbitrary-node" if bare else ""
    if _account(asked.name):
        return "serviceaccount" if bare else ""
    return "user-info"


def _subjects(asked: User, mode: str = "") -> Iterator[Action]:
    """A permission for each thing that is impersonated."""
    verb, group = (f"impersonate:{mode}", _AUTHN) if mode else ("impersonate", "")
    account = _account(asked.name)
    if account:
        yield Action(verb, group, "serviceaccounts", namespace=account[0], name=account[1])
    elif mode == "arbitrary-node":
        yield Action(verb, group, "nodes", name=asked.name.removeprefix(_NODE))
    else:
        yield Action(verb, group, "users", name=asked.name)
    if asked.uid:
        yield Action(verb, _AUTHN, "uids", name=asked.uid)
    for name in asked.groups:
        yield Action(verb, group, "groups", name=name)
    for key, values in asked.extra.items():
        for value in values:
            yield Action(verb, _AUTHN, "userextras", key, name=value)


def _complete(asked: User, *, constrained: bool = False) -> User:
    """With the groups that come by themselves."""
    groups = asked.groups
    account = _account(asked.name)
    if account and not groups:
        groups = service_account_groups(account[0])[:2]
    elif constrained and asked.name.startswith(_NODE):
        groups = ("system:nodes",)
    if asked.name == ANONYMOUS.name:
        groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(asked, groups=tuple(dict.fromkeys(groups)))
