"""Ask Prometheus and Alertmanager through the API server's service proxy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar
from urllib.parse import quote

from pydantic import BaseModel, ValidationError

from gameday.cluster.json_api import JsonApi
from gameday.cluster.kubernetes import Kubernetes
from gameday.cluster.prometheus import ActiveAlert, RuleGroup
from gameday.errors import AdapterError
from gameday_prove.promql import Selector, selectors, why_never
from gameday_prove.values import LoadedRule, Monitoring

M = TypeVar("M", bound=BaseModel)
_ABOUT_GPUS = re.compile(
    r"gpu|\bxid|nvidia|dcgm|nvlink|nvswitch|gameday_health|problem_gauge|problem_counter"
    r"|kube_node_status_condition|kube_node_spec_(taint|unschedulable)",
    re.IGNORECASE,
)
_NOT_PROMETHEUS = re.compile(r"alertmanager|operator$|exporter|kube-state|adapter|pushgateway|grafana|webhook|thanos")
_PORTS = {"prometheus": 9090, "alertmanager": 9093}
_CANDIDATES = 2
_SELECTORS_PER_QUERY = 40
"""Selectors in one GET: with 100 characters each the URL stays below the 8 KB that proxies take."""
_MOST_SELECTORS = 120
_TIMEOUTS_S = (5.0, 10.0)


def find_prometheus(kubernetes: Kubernetes, services: Sequence[dict[str, Any]]) -> Monitoring | None:
    """Return the first Prometheus that answers, with its rules about GPUs; None if none does.

    Raises:
        AdapterError: There is one, and it cannot be asked.
    """
    failed: AdapterError | None = None
    for service, path in _candidates(services, "prometheus"):
        try:
            return _read(kubernetes, service, path)
        except AdapterError as error:
            failed = error
    if failed:
        raise failed
    return None


def find_alertmanager(kubernetes: Kubernetes, services: Sequence[dict[str, Any]]) -> str:
    """Return the name of the service of the first Alertmanager that answers; empty if there is none.

    Raises:
        AdapterError: There is one, and it cannot be asked.
    """
    for service, path in _candidates(services, "alertmanager"):
        _get(kubernetes, f"{path}/api/v2/status", {})
        return service
    return ""


def alerts_now(kubernetes: Kubernetes, monitoring: Monitoring) -> list[ActiveAlert]:
    """Return the pending and firing alerts. Raises AdapterError."""
    data = _data(kubernetes, f"{monitoring.path}/api/v1/alerts", {})
    return _parsed(ActiveAlert, data.get("alerts"), monitoring.path)


def is_about(alert: ActiveAlert, node: str) -> bool:
    """Return True if a label of the alert names the node, alone or with a port."""
    return any(value == node or value.startswith(f"{node}:") for value in alert.labels.values())


def _candidates(services: Sequence[dict[str, Any]], kind: str) -> Iterator[tuple[str, str]]:
    """Yield the names and proxy paths of the services that may be of this kind, the operator's own first."""
    named = []
    for one in services:
        meta = one["metadata"]
        labels = meta.get("labels") or {}
        name, namespace = meta["name"], meta["namespace"]
        is_kind = kind in name or labels.get("app.kubernetes.io/name") == kind
        if not is_kind or (kind == "prometheus" and _NOT_PROMETHEUS.search(name)):
            continue
        for port in one["spec"].get("ports") or ():
            if port["port"] in (_PORTS[kind], 80, 443) and port.get("name") not in ("grpc", "reloader-web"):
                scheme = "https:" if port["port"] == 443 or port.get("name") == "https" else ""
                path = f"/api/v1/namespaces/{quote(namespace)}/services/{scheme}{quote(name)}:{port['port']}/proxy"
                named.append((not name.endswith("-operated"), f"{namespace}/{name}", path))
    for _, service, path in sorted(named)[:_CANDIDATES]:
        yield service, path


def _read(kubernetes: Kubernetes, service: str, path: str) -> Monitoring:
    data = _data(kubernetes, f"{path}/api/v1/rules", {"type": "alert"})
    groups = _parsed(RuleGroup, data.get("groups"), path)
    every = [rule for group in groups for rule in group.rules]
    about = [rule for rule in every if _ABOUT_GPUS.search(f"{rule.name} {rule.query}")]
    asked = [one for rule in about for one in selectors(rule.query)]
    series = _series(kubernetes, path, asked)
    rules = tuple(
        LoadedRule(
            name=rule.name,
            query=rule.query,
            hold_s=rule.hold_s,
            never=f"it does not evaluate: {rule.last_error}" if rule.last_error else why_never(rule.query, series),
        )
        for rule in about
    )
    firing = [
        alert.name
        for rule in every
        for alert in rule.alerts
        if alert.state == "firing" and alert.labels.get("severity") == "critical"
    ]
    return Monitoring(path=path, service=service, rules=rules, all_rules=len(every), firing=tuple(sorted(set(firing))))


def _series(kubernetes: Kubernetes, path: str, asked: Sequence[Selector]) -> dict[str, int]:
    """Return the number of series of each selector, and of its metric alone; those that were not asked are left out."""
    texts = list(dict.fromkeys(text for one in asked for text in (one.text, one.metric)))[:_MOST_SELECTORS]
    found: dict[str, int] = {}
    for first in range(0, len(texts), _SELECTORS_PER_QUERY):
        part = texts[first : first + _SELECTORS_PER_QUERY]
        query = " or ".join(
            f'label_replace(count({text}), "place", "{place}", "", "")' for place, text in enumerate(part)
        )
        try:
            result = _data(kubernetes, f"{path}/api/v1/query", {"query": query}).get("result") or ()
            counted = {int(one["metric"]["place"]): int(float(one["value"][1])) for one in result}
        except (AdapterError, KeyError, ValueError, TypeError):
            continue  # nothing is said of these
        found |= {text: counted.get(place, 0) for place, text in enumerate(part)}
    return found


def _data(kubernetes: Kubernetes, path: str, query: dict[str, str]) -> dict[str, Any]:
    answer = _get(kubernetes, path, query)
    data = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(data, dict):
        raise AdapterError(path, "answers, but not as Prometheus does")
    return data


def _get(kubernetes: Kubernetes, path: str, query: dict[str, str]) -> Any:
    return JsonApi(kubernetes.api, "", "", _TIMEOUTS_S).request("GET", path, query=query)


def _parsed(model: type[M], items: object, path: str) -> list[M]:
    try:
        return [model.model_validate(one) for one in items] if isinstance(items, list) else []
    except ValidationError as error:
        raise AdapterError(path, f"answers, but not as Prometheus does: {error.error_count()} fields differ") from None
