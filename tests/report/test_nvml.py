"""dcgm-exporter against NVML: what counts as the same, what is not compared, and how a difference is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from gameday.history.frames import Frames, conform
from tests.report import run_builder as build
from tests.report.page import drawn

TEMP, POWER, ECC = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"
Value = Callable[[float], float | None]


def steps(start: float, end: float, every: float) -> list[float]:
    return [start + n * every for n in range(round((end - start) / every) + 1)]


def scraped(metric: str, value: Value, gpu: str = "5", every: float = 1.0, start: float = -5.0, end: float = 20.0):
    """Return dcgm-exporter's samples, `value` by seconds since T+0."""
    return [
        {"time": at_fault(t), "node": build.NODE, "gpu": gpu, "metric": metric, "value": v}
        for t in steps(start, end, every)
        if (v := value(t)) is not None
    ]


def read(metric: str, value: Value, gpu: str = "5", every: float = 0.5, start: float = -5.0, end: float = 20.0):
    """Return NVML's samples as the agent took them."""
    return [row | {"source": "gd-x-sample"} for row in scraped(metric, value, gpu, every, start, end)]


def constant(value: float) -> Value:
    return lambda _: value


def at_fault(seconds: float) -> pd.Timestamp:
    return pd.Timestamp(build.at(build.FAULT_AT + seconds))


def compared(
    folder: Path, metrics: list[dict[str, Any]], nvml: list[dict[str, Any]]
) -> tuple[dict[str, Any] | None, str]:
    """Return the node's part of the section in report.json, and the section's words on the page."""
    frames = Frames(metrics=conform("metrics", metrics), nvml=conform("nvml", nvml))
    page, data = drawn(build.write(folder, build.passing(), frames), "nvml")
    nodes = data["nvml"]["nodes"]
    return (nodes[0] if nodes else None), page.text("nvml") or page.text()


def test_the_same_figures_agree_and_the_page_says_of_how_many(tmp_path: Path) -> None:
    node, words = compared(
        tmp_path,
        scraped(TEMP, lambda _: 45.0) + scraped(ECC, lambda _: 0.0),
        read("temperature_c", lambda _: 45.0) + read("ecc_dbe_volatile", lambda _: 0.0),
    )
    assert node and node["differences"] == [] and node["charts"] == []
    assert (node["readings"], node["every_s"], node["scraped_every_s"]) == (51, 0.5, 1.0)
    # Of 26 scrapes the first four lack readings from before their three intervals, and the last one lacks any after.
    assert node["compared"] == {TEMP: 21, ECC: 21}
    assert "They agree: of 42 values compared none is off by more than its tolerance" in words


def test_a_figure_that_dcgm_alone_shows_differs_with_both_values_and_both_curves(tmp_path: Path) -> None:
    node, words = compared(
        tmp_path,
        scraped(TEMP, lambda t: 95.0 if 2 <= t < 10 else 45.0) + scraped(TEMP, lambda _: 40.0, gpu="4"),
        read("temperature_c", lambda t: 45.0 + (t > 0)) + read("temperature_c", lambda _: 40.0, gpu="4"),
    )
    assert node
    (one,) = node["differences"]
    assert (one["gpu"], one["pair"]["dcgm"], one["differing"], one["first_s"], one["last_s"]) == ("5", TEMP, 8, 2, 9)
    assert (one["exporter"], one["low"], one["high"]) == (95.0, 45.0, 46.0)
    assert [(chart["title"], chart["gpu"]) for chart in node["charts"]] == [("Temperature", "5")]
    assert "They differ in 1 figure." in words and "Temperature of GPU 5" in words
    assert "8 of 21" in words


@pytest.mark.parametrize(("late_s", "differs"), [(2.5, False), (6.0, True)])
def test_a_scrape_may_be_as_late_as_three_scrape_intervals(tmp_path: Path, late_s: float, differs: bool) -> None:
    def rises(t: float) -> float:
        return 100.0 + 50 * max(0.0, t)

    node, _ = compared(tmp_path, scraped(POWER, lambda t: rises(t - late_s)), read("power_w", rises))
    assert node and bool(node["differences"]) is differs


def test_each_figure_has_its_tolerance(tmp_path: Path) -> None:
    """Each row is of a GPU of its own."""
    rows = [
        ("3 degrees", TEMP, "temperature_c", 48.0, 45.0, False),
        ("more than 3 degrees", TEMP, "temperature_c", 48.5, 45.0, True),
        ("9 W", POWER, "power_w", 109.0, 100.0, False),
        ("10 percent of much", POWER, "power_w", 440.0, 400.0, False),
        ("more than 10 percent", POWER, "power_w", 450.0, 400.0, True),
        ("one error", ECC, "ecc_dbe_volatile", 1.0, 0.0, True),
        ("the same errors", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "ecc_sbe_volatile", 4.0, 4.0, False),
        ("another clock", "DCGM_FI_DEV_SM_CLOCK", "sm_clock_mhz", 1980.0, 1755.0, True),
    ]
    exporter: list[dict[str, Any]] = []
    nvml: list[dict[str, Any]] = []
    for gpu, (_, metric, field, shown, right, _) in enumerate(rows):
        exporter += scraped(metric, constant(shown), gpu=str(gpu))
        nvml += read(field, constant(right), gpu=str(gpu))
    node, _ = compared(tmp_path, exporter, nvml)
    assert node
    metrics = [metric for _, metric, *_ in rows]
    assert node["compared"] == {metric: 21 * metrics.count(metric) for metric in metrics}
    differing = {rows[int(one["gpu"])][0] for one in node["differences"]}
    assert differing == {what for what, *_, differs in rows if differs}


def test_nothing_is_compared_while_nvml_was_not_read(tmp_path: Path) -> None:
    """The agent pauses from 3 s to 12 s; dcgm-exporter's value is off all the time."""
    node, _ = compared(
        tmp_path,
        scraped(TEMP, lambda _: 90.0),
        read("temperature_c", lambda t: None if 3 < t < 12 else 45.0),
    )
    assert node
    (one,) = node["differences"]
    assert (one["first_s"], one["last_s"]) == (-1.0, 19.0)
    assert one["compared"] == one["differing"] == 8, "the others have a part of the pause in their three intervals"


def test_a_gpu_that_nvml_loses_is_named_and_compared_up_to_then(tmp_path: Path) -> None:
    node, words = compared(
        tmp_path,
        scraped(TEMP, lambda _: 45.0),
        read("temperature_c", lambda t: 45.0 if t < 5 else None) + read("lost", lambda t: float(t >= 5)),
    )
    assert node and node["lost"] == {"5": 5.0} and node["differences"] == []
    assert "NVML had lost GPU 5 from T+5.0 s on" in words


def test_other_gpus_and_figures_that_only_one_side_has_are_not_compared(tmp_path: Path) -> None:
    node, words = compared(
        tmp_path, scraped(TEMP, lambda _: 90.0, gpu="4"), read("temperature_c", lambda _: 45.0) + read("power_w", abs)
    )
    assert node and node["compared"] == {} and node["differences"] == []
    assert "No scrape could be compared" in words and "They agree" not in words


@pytest.mark.parametrize("scrapes", [0, 1])
def test_too_few_scrapes_are_not_compared(tmp_path: Path, scrapes: int) -> None:
    one = scraped(TEMP, lambda _: 90.0, start=5.0, end=5.0)[:scrapes]
    node, words = compared(tmp_path, one, read("temperature_c", lambda _: 45.0))
    assert node and "No scrape could be compared" in words


def test_a_run_without_samples_says_so(tmp_path: Path) -> None:
    node, words = compared(tmp_path, scraped(TEMP, lambda _: 45.0), [])
    assert node is None and "(the agent took no NVML samples of its own)" in words


def test_the_furthest_off_come_first_and_what_is_not_shown_is_counted(tmp_path: Path) -> None:
    gpus = [str(gpu) for gpu in range(45)]
    node, words = compared(
        tmp_path,
        [row for gpu in gpus for row in scraped(TEMP, lambda _, gpu=gpu: 50.0 + int(gpu), gpu=gpu)],
        [row for gpu in gpus for row in read("temperature_c", lambda _: 45.0, gpu=gpu)],
    )
    assert node
    assert [one["gpu"] for one in node["differences"]] == [str(gpu) for gpu in range(44, 4, -1)]
    assert node["differences_left_out"] == 5 and len(node["charts"]) == 6
    assert "5 more figures differ" in words and "They differ in 45 figures." in words
