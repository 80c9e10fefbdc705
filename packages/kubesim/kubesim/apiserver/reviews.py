"""Reviews of one's own identity and rights: questions that are answered and not stored."""

from __future__ import annotations

from typing import Any

import orjson

from kubesim.apiserver.auth import User
from kubesim.apiserver.errors import bad_request, cause, invalid_request
from kubesim.apiserver.rbac import Action, Rbac
from kubesim.apiserver.resources import Resource
from kubesim.clock import rfc3339_now

Json = dict[str, Any]


class Reviews:
    """Answers the reviews that clients post."""

    def __init__(self, rbac: Rbac) -> None:
        self._rbac = rbac

    def answer(self, resource: Resource, user: User, body: Json) -> Json:
        """Return the review with its status. Raises StatusError 400 or 422."""
        body = {**body, "kind": resource.kind, "apiVersion": resource.api_version}
        spec = body.get("spec") or {}
        match resource.kind:
            case "SelfSubjectReview":
                body["metadata"] = {**body["metadata"], "creationTimestamp": rfc3339_now()}
                status: Json = {"userInfo": user.info()}
            case "SelfSubjectRulesReview":
                status = self._rules(user, spec)
                body["spec"] = {}
            case _:
                _check_question(resource, spec)
                body["spec"] = _without_empty(spec)
                status = self._access(user, spec)
        return {**body, "status": status}

    def _access(self, user: User, spec: Json) -> Json:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes") or {}
        if about is None:
            action = Action(path.get("verb", ""), path=str(path.get("path", "")))
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


def _check_question(resource: Resource, spec: Json) -> None:
    """Refuse a question about nothing or about both a resource and a path, by StatusError 422."""
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if (about is None) is not (path is None):
        return
    shown = "null"
    if path is not None:
        shown = orjson.dumps({key.capitalize(): path.get(key, "") for key in ("path", "verb")}).decode()
    hint = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    causes = [cause("FieldValueInvalid", "spec", f"Invalid value: {shown}: {hint}")]
    raise invalid_request(resource.group, "", causes)


def _without_empty(spec: Json) -> Json:
    """Return the question as a typed server repeats it, without empty fields."""
    parts = {key: value for key, value in spec.items() if value}
    return {
        key: {name: text for name, text in value.items() if text} if isinstance(value, dict) else value
        for key, value in parts.items()
    }
