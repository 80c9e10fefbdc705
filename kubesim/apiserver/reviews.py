"""Access, token and identity reviews: questions that are answered and not stored."""

from __future__ import annotations

from typing import Any

import orjson

from kubesim.apiserver.auth import API_AUDIENCES, Authenticator, User
from kubesim.apiserver.errors import bad_request, cause, invalid_request, wrong
from kubesim.apiserver.rbac import Action, Rbac
from kubesim.apiserver.resources import Resource
from kubesim.clock import rfc3339_now

Json = dict[str, Any]


class Reviews:
    """Answers a POSTed review."""

    def __init__(self, rbac: Rbac, authenticator: Authenticator) -> None:
        self._rbac = rbac
        self._authenticator = authenticator

    def answer(self, resource: Resource, user: User, body: Json) -> Json:
        """The review with its status filled in. Raises StatusError 400 or 422."""
        body = {**body, "kind": resource.kind, "apiVersion": resource.api_version}
        spec = body.get("spec") or {}
        match resource.kind:
            case "SelfSubjectReview":
                body["metadata"] = {**body["metadata"], "creationTimestamp": rfc3339_now()}
                status: Json = {"userInfo": user.info()}
            case "TokenReview":
                status = self._token(spec)
            case "SelfSubjectRulesReview":
                status = self._rules(user, spec)
                body["spec"] = {}
            case kind:
                causes = _access_causes(kind, spec)
                if causes:
                    raise invalid_request(resource.group, "", causes)
                body["spec"] = _without_empty(spec)
                status = self._access(user if kind == "SelfSubjectAccessReview" else _subject(spec), spec)
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

    def _token(self, spec: Json) -> Json:
        token, audiences = spec.get("token", ""), spec.get("audiences") or [*API_AUDIENCES]
        if not token:
            raise bad_request("token is required for TokenReview in authentication")
        user = self._authenticator.user_of_token(token, audiences)
        if user is not None:
            meant = (self._authenticator.claims(token) or {"aud": API_AUDIENCES})["aud"]
            shared = [audience for audience in audiences if audience in meant]
            return {"authenticated": True, "user": user.info(), "audiences": shared}
        claims = self._authenticator.claims(token)
        error = "invalid bearer token"
        if claims and not {*audiences} & {*claims["aud"]}:
            found, asked = (orjson.dumps(names).decode().replace(",", " ") for names in (claims["aud"], audiences))
            error = f"[{error}, token audiences {found} is invalid for the target audiences {asked}]"
        return {"user": {}, "error": error}


def _access_causes(kind: str, spec: Json) -> list[Json]:
    """Return the causes against the question."""
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    causes: list[Json] = []
    if (about is None) is (path is None):
        shown = (
            "null"
            if path is None
            else orjson.dumps({key.capitalize(): path.get(key, "") for key in ("path", "verb")}).decode()
        )
        hint = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        causes.append(cause("FieldValueInvalid", "spec", f"Invalid value: {shown}: {hint}"))
    if kind != "SelfSubjectAccessReview" and not spec.get("user") and not spec.get("groups"):
        causes.append(wrong("spec.user", "", "at least one of user or group must be specified"))
    return causes


def _without_empty(spec: Json) -> Json:
    """The question as a typed server repeats it."""
    parts = {key: value for key, value in spec.items() if value}
    return {
        key: {name: text for name, text in value.items() if text} if isinstance(value, dict) else value
        for key, value in parts.items()
    }


def _subject(spec: Json) -> User:
    return User(spec.get("user", ""), tuple(spec.get("groups") or ()))
