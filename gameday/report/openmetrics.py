"""A run's timings as one OpenMetrics file, for trends in Grafana without a push gateway.

Gauges without time stamps, so that node-exporter's textfile collector takes the file as it is; each run overwrites its
plan's file. What was not measured has no sample: 0 seconds would be the best run of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.report.safe_text import visible
from gameday.report.summary import Summary
from gameday.values.results import Cleanliness


def openmetrics(runs: Iterable[Summary]) -> bytes:
    """Return the newest given run of each plan as OpenMetrics; no summary makes it raise."""
    newest: dict[tuple[str, str], Summary] = {}
    for run in sorted(runs, key=lambda run: run.started):
        newest[run.plan, run.place] = run
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Runs(list(newest.values())))
    made: bytes = generate_latest(registry)  # type: ignore[no-untyped-call]
    return made


class _Runs(Collector):
    def __init__(self, runs: list[Summary]) -> None:
        self._runs = runs

    def collect(self) -> Iterable[Metric]:
        labels = ["plan", "cluster"]
        seconds = GaugeMetricFamily(
            "gameday_run_measure_seconds",
            "A duration of the plan's newest run; absent where it was not measured.",
            labels=[*labels, "measure"],
        )
        outcome = GaugeMetricFamily(
            "gameday_run_outcome", "1 for the outcome of the plan's newest run, 0 for the others.",
            labels=[*labels, "outcome"],
        )  # fmt: skip
        clean = GaugeMetricFamily(
            "gameday_run_cleanliness", "1 for how the plan's newest run left the cluster, 0 for the others.",
            labels=[*labels, "state"],
        )  # fmt: skip
        verdicts = GaugeMetricFamily(
            "gameday_run_checks", "Checks of the plan's newest run by their worst verdict.", labels=[*labels, "verdict"]
        )
        started = GaugeMetricFamily(
            "gameday_run_start_timestamp_seconds", "When the plan's newest run began, Unix time.", labels=labels
        )
        length = GaugeMetricFamily(
            "gameday_run_length_seconds", "From the first record of the plan's newest run to its last.", labels=labels
        )
        for run in self._runs:
            who = [visible(run.plan), visible(run.place)]
            for number in run.numbers:
                if number.seconds is not None and math.isfinite(number.seconds):
                    seconds.add_metric([*who, str(number.measure).replace(" ", "_").lower()], number.seconds)
            for one in RunOutcome:
                outcome.add_metric([*who, one], float(run.outcome is one))
            for state in Cleanliness:
                clean.add_metric([*who, state], float(run.cleanliness is state))
            for status in Status:
                verdicts.add_metric([*who, status], sum(worst is status for worst in run.checks.values()))
            started.add_metric(who, run.started.timestamp())
            length.add_metric(who, run.seconds)
        return [seconds, outcome, clean, verdicts, started, length]
