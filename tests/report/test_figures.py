"""Figures of a run: found like any other part, absent where nothing was measured, and one's bug costs only itself."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest

from gameday.history.events import CanaryMeasured, QaChecked
from gameday.history.frames import Frames
from gameday.plugins import Found
from gameday.report import figure
from gameday.report.figure import Figure, figures_of
from tests.report.run_builder import NODE, PLAN, Timed, history_of, passing, without


def values(timed: list[Timed]) -> dict[str, float]:
    return {one.name: one.value for one in figures_of(PLAN, history_of(timed), Frames()).figures}


def canary(phase: str, value: float | None) -> Timed:
    measured = CanaryMeasured.model_validate(
        {
            "node": NODE,
            "measure": "bandwidth",
            "phase": phase,
            "value": value,
            "unit": "GB/s",
            "ok": None,
            "at": datetime(2026, 3, 3, tzinfo=UTC),
        }
    )
    return Timed(20.0, measured)


def test_qa_gives_the_median_over_gpus() -> None:
    assert values(passing())["QA: NVLinks active"] == 18


def test_what_was_not_measured_is_absent() -> None:
    assert values(without(passing(), lambda event: isinstance(event, QaChecked))) == {}
    assert "canary: bandwidth before the fault" not in values([*passing(), canary("before", None)])


def test_the_canary_gives_a_figure_for_each_phase() -> None:
    found = values([*passing(), canary("before", 400.0), canary("during", 100.0), canary("during", 200.0)])
    assert found["canary: bandwidth before the fault"] == 400
    assert found["canary: bandwidth during the fault"] == 150


def test_the_latency_of_an_all_reduce_is_a_figure_of_its_own() -> None:
    seen = canary("during", 0.002)
    reduced = Timed(20.0, seen.event.model_copy(update={"measure": "all-reduce over nodes", "latency_ms": 50.0}))
    assert values([*passing(), reduced])["canary: latency of all-reduce over nodes during the fault"] == 50


def test_a_module_that_raises_costs_its_own_figures_and_leaves_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> list[Figure]:
        raise RuntimeError("no such series")

    def infinite(*_: object) -> list[Figure]:
        return [Figure(name="slope", unit="MiB", value=float("inf")), Figure(name="peak", unit="MiB", value=3)]

    parts = {"a": SimpleNamespace(figures=broken), "b": SimpleNamespace(figures=infinite)}
    monkeypatch.setattr(figure, "_found", lambda: Found(parts, {}))
    found = figures_of(PLAN, history_of(passing()), Frames())
    assert [one.name for one in found.figures] == ["peak"]
    assert found.problems == ("The figures of a could not be read: RuntimeError: no such series.",)
