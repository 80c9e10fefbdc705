"""Alertmanager, and the silences that would hide an alert that a plan expects."""

from __future__ import annotations

from collections.abc import Iterator

from gameday.cluster.prometheus import AlertingRule
from gameday.errors import AdapterError
from gameday.expect.alerts import ExpectedAlert
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.run.run import ReadOnlyRun


def check_alertmanager(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Check that Alertmanager answers, and that no silence matches an expected alert.

    Raises:
        AdapterError: Alertmanager does not answer.
    """
    alertmanager = run.servers.alertmanager
    version = alertmanager.status().version_info.version
    yield Prerequisite("alertmanager", "answers", True, f"{run.profile.alertmanager.url}, {version}")
    silences = alertmanager.silences()
    for expected in run.plan.expect.alerts:
        try:
            rule = run.servers.prometheus.rule(expected.name)
        except AdapterError:
            why = "Prometheus does not answer, so that the labels which a silence would match are unknown"
            yield Prerequisite("alertmanager", f"{expected.name} is not silenced", None, why, "see to Prometheus first")
            continue
        muting = [silence for silence in silences if rule and silence.mutes(_labels(expected, rule))]
        reasons = [f"by {silence.created_by} until {silence.ends_at:%Y-%m-%d %H:%M} UTC" for silence in muting]
        fix = "expire the silence, or run when it has ended" if muting else ""
        detail = "silenced " + "; ".join(reasons) if muting else "no silence matches it"
        yield Prerequisite("alertmanager", f"{expected.name} is not silenced", not muting, detail, fix)


def _labels(expected: ExpectedAlert, rule: AlertingRule) -> dict[str, str]:
    """Return the alert's labels without its node; a run checks the silences of its own targets."""
    return {**rule.labels, **expected.labels, "alertname": expected.name}
