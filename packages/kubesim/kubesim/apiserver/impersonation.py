"""Impersonation headers, as `kubectl --as` and `--as-group` send them: users, groups and service accounts.

A caller needs the permission `impersonate` for each of them. The constrained permissions of Kubernetes 1.36 (KEP-5284)
are not simulated, nor are uids and extra attributes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from multidict import CIMultiDictProxy

from kubesim.apiserver.auth import ANONYMOUS, AUTHENTICATED, UNAUTHENTICATED, User, service_account_groups
from kubesim.apiserver.errors import bad_request
from kubesim.apiserver.rbac import Action, Rbac
from kubesim.unsimulated import sentence

_REFUSED = ("impersonate-uid", "impersonate-extra-")


def impersonated(rbac: Rbac, caller: User, headers: CIMultiDictProxy[str]) -> User:
    """Return the user to act as: the caller, unless a header asks otherwise.

    Raises:
        StatusError: 400 for headers that make no sense or are not simulated, 403 without the permission.
    """
    asked = User(headers.get("Impersonate-User", ""), tuple(headers.getall("Impersonate-Group", [])))
    for name in headers:
        if name.lower().startswith(_REFUSED):
            raise bad_request(sentence(f"the header {name}"))
    if not asked.name:
        if asked.groups:
            raise bad_request("Impersonate-Group is given without Impersonate-User")
        return caller
    for action in _needed(asked):
        rbac.check(caller, action)
    return _complete(asked)


def _account(name: str) -> tuple[str, str] | None:
    """Return (namespace, name) of a service account's user name, None for any other user."""
    parts = name.split(":")
    return (parts[2], parts[3]) if len(parts) == 4 and name.startswith("system:serviceaccount:") else None


def _needed(asked: User) -> Iterator[Action]:
    """Yield a permission for each name that is impersonated."""
    if account := _account(asked.name):
        yield Action("impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        yield Action("impersonate", resource="users", name=asked.name)
    for name in asked.groups:
        yield Action("impersonate", resource="groups", name=name)


def _complete(asked: User) -> User:
    """Add the groups that every such user is in."""
    groups = asked.groups
    account = _account(asked.name)
    if account and not groups:
        groups = service_account_groups(account[0])[:2]
    if asked.name == ANONYMOUS.name:
        groups = (*groups, UNAUTHENTICATED)
    elif UNAUTHENTICATED not in groups:
        groups = (*groups, AUTHENTICATED)
    return replace(asked, groups=tuple(dict.fromkeys(groups)))
