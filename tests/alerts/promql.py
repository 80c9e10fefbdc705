"""The names in a PromQL expression, and the metrics with their labels that our own processes export."""

from __future__ import annotations

import re

from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from gameday_health.episodes.metrics import RepairMetrics
from gameday_health.metrics import LeadMetrics, Metrics

WORDS = {"and", "or", "unless", "bool", "offset", "by", "on", "group_left"}
_SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}


def metrics_of(expression: str) -> set[str]:
    """Return every name in it that is no function, no keyword and no label."""
    text = _without_strings(expression)
    text = re.sub(r"\{[^}]*\}|\[[^\]]*\]", "", text)
    text = re.sub(r"\b(by|on|group_left)\s*\([^)]*\)", "", text)
    text = re.sub(r"\boffset\s+\w+", "", text)
    names = set(re.findall(r"[A-Za-z_][\w:]*(?!\w|:|\s*\()", text))
    return {name for name in names if name not in WORDS and not re.fullmatch(r"e\d+", name)}


def labels_of(expression: str) -> set[str]:
    """Return every label that it selects, groups or joins by."""
    text = _without_strings(expression)
    selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", "".join(re.findall(r"\{[^}]*\}", text)))
    return {*selected, *grouped_by(text)}


def grouped_by(expression: str) -> set[str]:
    """Return the labels of every `by` and `on`."""
    groups = re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression)
    return {label.strip() for group in groups for label in group.split(",") if label.strip()}


def own_metrics() -> dict[str, set[str]]:
    """Return the series' names of the node-health controller and of the repairer, each with its labels."""
    found: dict[str, set[str]] = {}
    for kind in (LeadMetrics, Metrics, RepairMetrics):
        for metric in vars(kind(CollectorRegistry())).values():
            if not isinstance(metric, MetricWrapperBase):
                continue
            (family,) = metric.describe()
            labels = {*metric._labelnames, *({"le"} if family.type == "histogram" else ())}
            found |= {f"{family.name}{suffix}": labels for suffix in _SUFFIXES[family.type]}
    return found


def run_metrics(exported: str) -> dict[str, set[str]]:
    """Return the series' names of `gameday export --openmetrics`, each with its labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(exported):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def _without_strings(expression: str) -> str:
    return re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
