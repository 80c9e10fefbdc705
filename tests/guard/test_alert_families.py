"""The doctor's words on a rule whose source a cluster lacks, for the shipped rules and a Prometheus stand-in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gameday.clock import Clock
from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.guard.doctor.prometheus import check_prometheus
from gameday.guard.rule_series import CONTROLLER_METRICS, RuleSeries
from gameday.plan.load import SilentSource
from gameday.values.alert_families import MEANINGS, AlertSource, FamilyRule
from tests.alerts.shipped import ALL_RULES, BY_NAME, GROUPS, ROOT

PREFIX = {"our node-health controller": CONTROLLER_METRICS, "dcgm-exporter": "DCGM_", "kube-state-metrics": "kube_"}
FAMILY_RULES = [rule for rules in MEANINGS.values() for rule in rules]


@dataclass(frozen=True)
class Scraping:
    """A Prometheus with our rules that scrapes metrics of these prefixes, none of which has a series now."""

    prefixes: tuple[str, ...] = ()

    def build_info(self) -> Any:
        return SimpleNamespace(version="2.42")

    def rule(self, name: str) -> Any:
        return SimpleNamespace(last_error="", hold_s=0.0, state="inactive") if name in BY_NAME else None

    def queries(self, name: str) -> tuple[str, ...]:
        return (BY_NAME[name]["expr"],) if name in BY_NAME else ()

    def recording_rules(self) -> list[Any]:
        return [SimpleNamespace(name=rule["record"], query=rule["expr"]) for rule in ALL_RULES if "record" in rule]

    def rule_groups(self) -> tuple[Any, ...]:
        return ()

    def query(self, query: str) -> list[Any]:
        return []

    def exposes(self, metric: str) -> bool:
        return metric.startswith(self.prefixes)


def said_of(
    alert: str,
    *prefixes: str,
    watching: str = "gameday",
    named: str | None = None,
    silent: Sequence[SilentSource] = (),
    rehearsal: Path | None = None,
) -> Prerequisite:
    """The doctor's word on whether the rule can fire.

    Args:
        alert: The alert that the plan expects.
        prefixes: Beginnings of the metrics that are scraped.
        watching: The cluster profile's detector.
        named: The plan's.
        silent: The sources that do not show the plan's fault.
        rehearsal: The cluster profile's folder of a virtual cluster.
    """
    run: Any = SimpleNamespace(
        clock=Clock(),
        servers=SimpleNamespace(prometheus=Scraping(prefixes)),
        profile=SimpleNamespace(
            detector=watching, prometheus=SimpleNamespace(url="http://p"), rehearsal=rehearsal, guest=None
        ),
        plan=SimpleNamespace(expect=SimpleNamespace(alerts=[SimpleNamespace(name=alert)])),
        record=SimpleNamespace(
            loaded=SimpleNamespace(
                from_detector=SimpleNamespace(detector=named) if named else None, silent_sources=tuple(silent)
            )
        ),
    )
    (said,) = (one for one in check_prometheus(run) if one.name == f"rule {alert} can fire")
    return said


@pytest.mark.parametrize(
    ("watching", "fix"),
    [("gameday", "start it without --detector off"), ("konduktor", "rehearse with our controller: --detector default")],
)
def test_in_a_rehearsal_the_next_step_is_one_of_a_rehearsal(tmp_path: Path, watching: str, fix: str) -> None:
    said = said_of("GPUFellOffTheBus", watching=watching, rehearsal=tmp_path)
    assert said.ok is False and fix in said.fix and "scrape" not in said.fix


def test_with_dcgm_exporter_alone_the_rule_of_dcgm_exporter_is_named() -> None:
    said = said_of("GPUFellOffTheBus", "DCGM_")
    assert said.ok is False
    assert "GPUXidHardware (labels {code: '79'}; dcgm-exporter, for what DCGM sees)" in said.fix
    assert "Node" not in said.fix.partition("of the same meaning")[2]


@pytest.mark.parametrize("where", ["watching", "named"])
def test_with_a_foreign_detector_and_kube_state_metrics_their_rules_are_named(where: str) -> None:
    said = said_of("GPUXidCritical", "kube_", **{where: "konduktor"})
    assert said.ok is False
    assert "come from our node-health controller alone, and detector konduktor makes none of them" in said.detail
    named = said.fix.partition("of the same meaning")[2]
    assert "NodeQuarantined (kube-state-metrics" in named
    assert "NodeGPUConditionFailed (kube-state-metrics" in named
    assert "GPUXidHardware" not in named


def test_a_rule_of_our_controller_that_is_scraped_says_that_it_shows_no_foreign_detector() -> None:
    said = said_of("GPUXidCritical", CONTROLLER_METRICS, watching="nvsentinel")
    assert said.ok is True
    assert "and detector nvsentinel makes none of them" in said.detail
    assert "makes none of them" not in said_of("GPUXidCritical", CONTROLLER_METRICS).detail


NO_CONDITION = SilentSource(AlertSource.CONDITIONS, "it sets none", certain=False)
NO_LINE = SilentSource(AlertSource.DCGM, "DCGM sees no line", certain=True)


def test_a_rule_whose_source_does_not_show_the_fault_is_not_named() -> None:
    said = said_of("GPUFellOffTheBus", "kube_", "DCGM_", watching="konduktor", silent=[NO_CONDITION, NO_LINE])
    named = said.fix.partition("of the same meaning")[2]
    assert "NodeQuarantined" in named
    assert "NodeGPUConditionFailed" not in named and "GPUXidHardware" not in named


@pytest.mark.parametrize(
    ("alert", "ok", "why"),
    [
        ("NodeGPUConditionFailed", None, "is not expected to fire for this fault: it sets none"),
        ("GPUXidHardware", False, "cannot fire for this fault: DCGM sees no line"),
        ("NodeQuarantined", True, ""),
        ("GPUTemperatureHigh", True, ""),
    ],
)
def test_series_that_are_here_are_not_enough_where_the_source_does_not_show_the_fault(
    alert: str, ok: bool | None, why: str
) -> None:
    said = said_of(alert, "kube_", "DCGM_", watching="konduktor", silent=[NO_CONDITION, NO_LINE])
    assert said.ok is ok
    assert why in said.detail
    assert ("NodeQuarantined (kube-state-metrics" in said.fix) is (ok is not True)


def test_where_nothing_is_scraped_nothing_else_is_named() -> None:
    said = said_of("GPUFellOffTheBus")
    assert said.ok is False
    assert "of the same meaning" not in said.fix


@pytest.mark.parametrize("alert", ["GPUXidWorkload", "GPUNVLink5Error"])
def test_a_rule_with_an_arm_of_its_own_for_dcgm_is_not_the_controllers_alone(alert: str) -> None:
    said = said_of(alert, "DCGM_", watching="konduktor")
    assert said.ok is True
    assert "makes none of them" not in said.detail


def test_every_rule_of_a_kernel_log_is_our_controllers_alone() -> None:
    (group,) = (group for group in GROUPS if group["name"] == "gpu-kernel-log")
    series: Any = RuleSeries(Scraping())  # type: ignore[arg-type]
    alerts = [rule for rule in group["rules"] if "alert" in rule]
    assert alerts
    assert all(series.always_needs([rule["expr"]], CONTROLLER_METRICS) for rule in alerts)


@pytest.mark.parametrize("rule", FAMILY_RULES, ids=lambda rule: f"{rule.alert}, {rule.source}")
def test_a_rule_reads_the_source_of_its_family_and_no_other(rule: FamilyRule) -> None:
    (prefix,) = (prefix for source, prefix in PREFIX.items() if rule.source.startswith(source))
    series: Any = RuleSeries(Scraping())  # type: ignore[arg-type]
    assert series.always_needs([BY_NAME[rule.alert]["expr"]], prefix)


def test_every_family_is_led_by_our_controllers_rule() -> None:
    assert [rules[0].source for rules in MEANINGS.values()] == [AlertSource.CONTROLLER] * len(MEANINGS)


@pytest.mark.parametrize("meaning", MEANINGS)
def test_the_page_has_the_table_of_the_families(meaning: str) -> None:
    cells = [meaning]
    for source in PREFIX:
        rules = [rule for rule in MEANINGS[meaning] if rule.source.startswith(source)]
        shown = [", ".join([rule.alert, *(f'`{key}="{value}"`' for key, value in rule.labels)]) for rule in rules]
        cells.append(" or ".join(shown) or "none")
    row = f"| {' | '.join(cells)} |"
    assert row in (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8"), row
