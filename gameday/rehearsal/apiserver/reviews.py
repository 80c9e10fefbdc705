"""Access, token and identity reviews: questions that are answered and not stored."""

from __future__ import annotations

from typing import Any

from gameday.rehearsal.apiserver.auth import AUTHENTICATED, Authenticator, User
from gameday.rehearsal.apiserver.errors import bad_request
from gameday.rehearsal.apiserver.objects import now
from gameday.rehearsal.apiserver.rbac import Action, Rbac
from gameday.rehearsal.apiserver.resources import Resource

Json = dict[str, Any]


class Reviews:
    """Answers a POSTed review."""

    def __init__(self, rbac: Rbac, authenticator: Authenticator) -> None:
        self._rbac = rbac
        self._authenticator = authenticator

    def answer(self, resource: Resource, user: User, namespace: str, body: Json) -> Json:
        """The review with its status filled in. Raises ApiError 400."""
        body = {**body, "kind": resource.kind, "apiVersion": resource.api_version}
        body.setdefault("metadata", {})
        spec = body.get("spec") or {}
        match resource.kind:
            case "SelfSubjectReview":
                body["metadata"] = {**body["metadata"], "creationTimestamp": now()}
                status: Json = {"userInfo": user.info()}
            case "TokenReview":
                status = self._token(spec)
            case "SelfSubjectRulesReview":
                status = self._rules(user, spec)
            case "SelfSubjectAccessReview":
                status = self._access(user, spec)
            case "LocalSubjectAccessReview" if (spec.get("resourceAttributes") or {}).get("namespace") != namespace:
                raise bad_request("spec.resourceAttributes.namespace must match the namespace of the request")
            case _:
                status = self._access(_subject(spec), spec)
        return {**body, "status": status}

    def _access(self, user: User, spec: Json) -> Json:
        about = spec.get("resourceAttributes")
        path = (spec.get("nonResourceAttributes") or {}).get("path")
        if about is None and path is None:
            raise bad_request("exactly one of nonResourceAttributes or resourceAttributes must be specified")
        if about is None:
            action = Action(spec["nonResourceAttributes"].get("verb", ""), path=str(path))
        else:
            names = ("verb", "group", "resource", "subresource", "namespace", "name")
            action = Action(**{name: about.get(name, "") for name in names})
        decision = self._rbac.decide(user, action)
        return {"allowed": decision.allowed} | ({"reason": decision.reason} if decision.reason else {})

    def _rules(self, user: User, spec: Json) -> Json:
        if not spec.get("namespace"):
            raise bad_request("no namespace on request")
        rules = self._rbac.rules(user, spec["namespace"])
        resource = [
            {name: rule[name] for name in ("verbs", "apiGroups", "resources", "resourceNames") if rule.get(name)}
            for rule in rules
            if rule.get("resources")
        ]
        paths = [
            {"verbs": rule["verbs"], "nonResourceURLs": rule["nonResourceURLs"]}
            for rule in rules
            if rule.get("nonResourceURLs")
        ]
        return {"resourceRules": resource, "nonResourceRules": paths, "incomplete": False}

    def _token(self, spec: Json) -> Json:
        user = self._authenticator.of_token(spec.get("token", ""))
        if user is None:
            return {"authenticated": False, "error": "invalid bearer token"}
        return {"authenticated": True, "user": user.info(), "audiences": spec.get("audiences") or []}


def _subject(spec: Json) -> User:
    if not spec.get("user") and not spec.get("groups"):
        raise bad_request("at least one of user or group must be specified")
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()) or (AUTHENTICATED,))
