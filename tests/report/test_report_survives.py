"""Damaged, hostile and half-finished run folders: there is always a report, and it never lies about what is missing."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gameday.history.events import (
    RECORD,
    AlertSeen,
    IntentRecorded,
    NodeSeen,
    Problem,
    QaChecked,
    RunStarted,
    StepEnded,
    WorkloadSeen,
)
from gameday.history.frames import Frames, conform
from gameday.report import charts
from gameday.report.render import render
from gameday.report.sections import gpus
from gameday.values.results import Step
from tests.report import run_builder as build
from tests.report.page import Page, drawn

NOW = datetime(2026, 3, 4, 12, 0, tzinfo=UTC)


def page_of(folder: Path) -> Page:
    rendered = render(folder, NOW)
    json.loads(rendered.json.read_text())
    page = Page(rendered.html.read_text())
    assert page.unbalanced == []
    assert "could not be drawn" not in page.text(), page.text()
    return page


def gpus_of(folder: Path) -> tuple[Page, dict]:
    page, data = drawn(folder, "gpus")
    assert page.unbalanced == []
    assert "failure" not in data["gpus"]
    return page, data["gpus"]


def charts_of(page: Page) -> list[dict[str, str | None]]:
    """Of the GPUs' metrics."""
    charts = [attrs for attrs in page.attributes("svg") if attrs["class"] == "chart-svg"]
    return [attrs for attrs in charts if "GPUs over time" in attrs["aria-label"]]


def metrics(*rows: tuple[float, str, str, float]) -> Frames:
    return Frames(
        metrics=conform(
            "metrics",
            [
                {"time": pd.Timestamp(build.at(t)), "node": build.NODE, "gpu": gpu, "metric": metric, "value": value}
                for t, gpu, metric, value in rows
            ],
        )
    )


@pytest.mark.parametrize("seconds", [0.0, 12.5, 46.35])
def test_a_run_killed_at_any_moment(tmp_path, seconds):
    page = page_of(build.write(tmp_path, build.cut_off(build.passing(), seconds), Frames()))
    assert "Unknown" in page.text("verdict")
    assert "the history was never closed" in page.text("identity")


def test_an_empty_folder(tmp_path):
    page = page_of(tmp_path)
    assert "Unknown" in page.text("verdict")
    problems = page.text("problems")
    for name in ("plan.yaml", "plan.json", "history.jsonl", "frames folder"):
        assert name in problems
    assert "0 s" not in page.text("verdict")


def test_no_folder_is_an_error_that_names_it(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nowhere is not a run folder"):
        render(tmp_path / "nowhere", NOW)


def test_a_torn_last_line(tmp_path):
    folder = build.write(tmp_path, build.cut_off(build.passing(), 20))
    history = folder / "history.jsonl"
    history.write_bytes(history.read_bytes()[:-40])
    assert "1 line could not be decoded" in page_of(folder).text("problems")


def test_rubbish_between_lines(tmp_path):
    folder = build.write(tmp_path, build.passing(), Frames())
    history = folder / "history.jsonl"
    lines = history.read_bytes().splitlines()
    history.write_bytes(b"\n".join([*lines[:5], b"\xff\xfe\x00 rubbish", b'{"seq": 1}', *lines[5:]]))
    page = page_of(folder)
    assert "2 lines could not be decoded" in page.text("problems")
    assert "2 problems" not in page.text("verdict") and "1 problem with the run" in page.text("verdict")


@pytest.mark.parametrize("content", [None, b'{"apiVersion": "gameday/v9"}', b"\x00\xff"])
def test_a_missing_or_damaged_plan(tmp_path, content):
    folder = build.write(tmp_path, build.passing(), Frames(), plan=None)
    if content is not None:
        (folder / "plan.json").write_bytes(content)
    page = page_of(folder)
    assert "plan.json" in page.text("problems")
    assert "Unknown" in page.text("verdict")
    assert "T+0.60 s" in page.text("timeline")  # what is known is still shown


def test_a_plan_with_a_fault_nobody_knows_any_more(tmp_path):
    plan = json.loads(build.PLAN.model_dump_json())
    plan["fault"] = {"type": "dragon", "hold": "60s", "breath": "fire"}
    folder = build.write(tmp_path, build.passing(), Frames(), plan=None)
    (folder / "plan.json").write_text(json.dumps(plan))
    text = page_of(folder).text("hypothesis")
    assert "dragon" in text and "breath" in text and "fire" in text


@pytest.mark.parametrize("kind", ["missing", "rubbish", "wrong-columns"])
def test_frames_that_are_not_there(tmp_path, kind):
    folder = build.write(tmp_path, build.passing(), None if kind == "missing" else Frames())
    if kind == "rubbish":
        (folder / "frames" / "metrics.parquet").write_bytes(b"PAR1 no parquet PAR1")
    if kind == "wrong-columns":
        pd.DataFrame({"a": [1]}).to_parquet(folder / "frames" / "metrics.parquet")
    text = page_of(folder).text("gpus")
    assert "Not measured" in text
    assert "0 samples" not in text


def test_one_sample(tmp_path):
    page, _ = gpus_of(build.write(tmp_path, build.passing(), metrics((12, "5", "DCGM_FI_DEV_GPU_TEMP", 61.0))))
    assert len(charts_of(page)) == 1
    assert "not measured" in page.text("gpus")


def test_nan_infinity_and_gaps(tmp_path):
    rows = [(t, gpu, "DCGM_FI_DEV_GPU_TEMP", 60.0 + t % 3) for t in (*range(0, 10), *range(30, 40)) for gpu in "05"]
    rows += [(15, "5", "DCGM_FI_DEV_GPU_TEMP", math.nan), (16, "5", "DCGM_FI_DEV_GPU_TEMP", math.inf)]
    page, _ = gpus_of(build.write(tmp_path, build.passing(), metrics(*rows)))
    assert "inf" not in page.text("gpus") and "nan" not in page.text("gpus")
    assert "2 more were not numbers" in page.text("gpus")
    assert "1 longest 21.0 s" in page.text("gpus")
    target = pd.DataFrame({"t": [*range(0, 10), *range(30, 40)], "gpu": "5", "value": 1.0}).astype({"t": float})
    (curve,) = charts.lines(target, charts.Scene((0, 40), None, (), "5"), None).curves
    assert curve.path.count("M") == 2  # a line never bridges a gap
    assert curve.path.index("M30 ") > curve.path.index("L9 ")


@pytest.mark.parametrize("values", [(1e308, -1e308), (5e-324, 1e-320), (1e300, 1.0), (0.0, -0.0)], ids=str)
def test_numbers_at_the_edge_of_floating_point(tmp_path, values):
    rows = [(t, "5", "DCGM_FI_DEV_GPU_TEMP", value) for t, value in enumerate(values * 3)]
    rows += [(t, "5", "DCGM_FI_DEV_POWER_USAGE", 400.0 + t) for t in range(6)]
    page, _ = gpus_of(build.write(tmp_path, build.passing(), metrics(*rows)))
    assert "Power" in page.text("gpus") and page.attributes("svg")


def test_only_nan(tmp_path):
    page, _ = gpus_of(build.write(tmp_path, build.passing(), metrics((1, "5", "DCGM_FI_DEV_GPU_TEMP", math.nan))))
    assert "Not measured" in page.text("gpus")


def test_long_series_are_thinned_without_losing_a_peak():
    t, values = np.arange(5000.0), np.ones(5000)
    values[2345], values[4000] = 99.0, -7.0
    kept = charts.thin(t, values, charts.BUCKETS)
    assert len(kept) <= 2 * charts.BUCKETS
    assert {2345, 4000} <= set(kept)
    assert list(kept) == sorted(kept)


@pytest.mark.slow
def test_many_metrics_and_many_gpus_stay_small(tmp_path):
    rows = [(t, str(g), f"METRIC_{m:02}", float(t * g % 7)) for t in range(40) for g in range(16) for m in range(20)]
    rendered = render(build.write(tmp_path, build.passing(), metrics(*rows)), NOW)
    page = Page(rendered.html.read_text())
    assert len(charts_of(page)) == gpus.MOST_CHARTS
    assert "Not drawn: METRIC_12" in page.text("gpus")
    assert rendered.html.stat().st_size < 2_000_000


def test_a_clock_that_jumps(tmp_path):
    records = list(build.history_of(build.passing()).records)
    jumped = [replace(r, at=r.at + timedelta(hours=-2)) if r.seq > 60 else r for r in records]
    folder = build.write(tmp_path, build.passing(), Frames())
    (folder / "history.jsonl").write_bytes(b"".join(RECORD.dump_json(r) + b"\n" for r in jumped))
    assert "wall clock jumped by -7200.0 s before record 61" in page_of(folder).text("problems")


def test_a_run_that_two_processes_wrote_has_no_jump(tmp_path):
    records = build.history_of(build.passing()).records
    second = [replace(r, boot="boot-b", monotonic=r.monotonic - 900) if r.seq > 60 else r for r in records]
    folder = build.write(tmp_path, build.passing(), Frames())
    (folder / "history.jsonl").write_bytes(b"".join(RECORD.dump_json(r) + b"\n" for r in second))
    assert "Problems, and what to do (none on record)" in page_of(folder).text()


HOSTILE = [
    "<script>document.title='owned'</script>",
    '"><img src=x onerror=alert(1)>',
    "'-alert(1)-' {{ 7*7 }} {% raw %}",
    "</style></svg></title><svg onload=alert(1)>",
    "\x1b[31mred\x1b[0m \x00 \u202egnirts \u2066x",
    "javascript:alert(1)",
    "A" * 1_000_000,
    "]]>&lt;&amp;<!--",
]


def hostile_run(text: str) -> list[build.Timed]:
    """Every free text of the run is hostile at once."""
    timed = [t for t in build.passing() if not isinstance(t.event, (WorkloadSeen, QaChecked, NodeSeen))]
    timed = build.replacing(
        timed, lambda e: isinstance(e, RunStarted), operator=text, cluster=text, command=text, flow_run_url=text,
        flow_run_id=text, cluster_uid=text, server_version=text, gameday_version=text, run_id=text, plan_name=text,
    )  # fmt: skip
    timed = build.replacing(
        timed, lambda e: isinstance(e, AlertSeen) and not e.expected, alert=text, labels={"severity": text},
        annotations={"summary": text}, at_baseline=False,
    )  # fmt: skip
    timed = build.replacing(timed, lambda e: isinstance(e, AlertSeen) and e.expected, receivers=(text,))
    timed = build.replacing(timed, lambda e: isinstance(e, StepEnded), why=text)
    timed = build.replacing(timed, lambda e: isinstance(e, IntentRecorded), act=text, undo=text, object=text)
    timed = build.replacing(
        timed, lambda e: e.kind == "fault_injected", fault=text, layer=text, evidence=(text,), does_not_reach=text,
        seen_by=(text,),
    )  # fmt: skip
    timed = build.replacing(timed, lambda e: e.kind == "hop_seen", source=text)
    timed = build.replacing(timed, lambda e: e.kind == "taint_seen", manager=text)
    timed = build.replacing(timed, lambda e: e.kind == "remediated", detail=text, action=text, ok=False)
    timed = build.replacing(timed, lambda e: e.kind == "api_cost", by_call={text: 3})
    pod = WorkloadSeen(purpose="canary", pod=text, node=text, phase=text, wanted=text, ok=None, detail=text)
    qa = QaChecked(node=build.NODE, gpu=3, check=text, value=text, unit=text, bound=text, ok=False, detail=text)
    snap = build.snapshot().model_copy(update={"labels": {text: text}, "annotations": {text: text}})
    return [
        *timed,
        build.Timed(20, pod),
        build.Timed(40, qa),
        build.Timed(40.1, qa.model_copy(update={"gpu": None, "ok": None})),
        build.Timed(7, NodeSeen(phase="before", snapshot=build.snapshot())),
        build.Timed(46, NodeSeen(phase="after", snapshot=snap)),
        build.Timed(30, Problem(step=Step.RECOVER, what=text, hint=text)),
    ]


def rows_of(gpu: str, metric: str) -> Frames:
    """A target GPU and another one, each with a metric of any name and its Xids."""
    return metrics(
        *(
            (t, one, name, t % 5 + 1.0)
            for t in range(5, 40)
            for one in ("5", gpu)
            for name in (metric, "DCGM_FI_DEV_XID_ERRORS")
        )
    )


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    return page_of(build.write(tmp_path_factory.mktemp("calm"), hostile_run("harmless"), rows_of("6", "METRIC")))


@pytest.mark.parametrize(
    "text",
    [pytest.param(text, marks=pytest.mark.slow) if len(text) > 1000 else text for text in HOSTILE],
    ids=["script", "img", "template", "svg", "ansi", "url", "1MB", "cdata"],
)
def test_hostile_text_is_only_text(tmp_path, calm, text):
    plan = build.PLAN.model_copy(update={"title": text[:200], "hypothesis": text[:4000]})
    folder = build.write(tmp_path, hostile_run(text), rows_of(text, text), plan)
    (folder / "plan.yaml").write_text(text, errors="surrogatepass")
    page = page_of(folder)
    assert {tag for tag, _ in page.tags} == {tag for tag, _ in calm.tags}
    assert [name for _, attrs in page.tags for name in attrs if name.startswith("on")] == []
    assert [attrs["href"] for attrs in page.attributes("a") if not attrs["href"].startswith("#")] == []
    assert "\x1b" not in page.html and "\x00" not in page.html and "\u202e" not in page.html
    assert len(page.html) < 2_000_000
    if len(text) < 1000 and text.isprintable():
        assert text in page.text("problems")


def test_a_section_that_fails_costs_only_itself(tmp_path, monkeypatch):
    from gameday.report.sections import cost

    def explode(run):
        raise RuntimeError("<blink>no</blink>")

    monkeypatch.setattr(cost, "build", explode)
    page = Page(render(build.write(tmp_path, build.passing(), Frames()), NOW).html.read_text())
    assert "could not be drawn: RuntimeError: <blink>no</blink>" in page.text("cost")
    assert "Passed" in page.text("verdict")
    assert not page.attributes("blink")


def test_a_frame_of_very_many_rows_is_thinned_and_says_so(tmp_path):
    n = 60_000
    t = np.linspace(0, 45, n)
    value = np.where(t < build.FAULT_AT, 60.0, 70.0)
    value[n // 3] = 99.0
    times = pd.Timestamp(build.START) + pd.to_timedelta(t, unit="s")
    parts = [
        pd.DataFrame({"time": times, "node": build.NODE, "gpu": gpu, "metric": "DCGM_FI_DEV_GPU_TEMP", "value": value})
        for gpu in ("4", "5")
    ]
    frames = Frames(metrics=conform("metrics", pd.concat(parts)))
    page, data = gpus_of(build.write(tmp_path, build.passing(), frames))
    assert "120,000 samples, drawn as the lowest and highest of each of 160 equal stretches" in page.text("gpus")
    (chart,) = data["nodes"][0]["charts"]
    assert chart["during"]["high"] == 99.0  # of all samples
    assert sum(chart[part]["n"] for part in ("before", "during", "after")) == n
    assert "99" in page.html.partition('"series"')[2] and len(page.html) < 500_000


def test_a_stray_time_stamp_squeezes_nothing(tmp_path):
    rows = [(t, "5", "DCGM_FI_DEV_GPU_TEMP", 60.0 + t % 3) for t in range(5, 40)]
    page, data = gpus_of(
        build.write(tmp_path, build.passing(), metrics(*rows, (-9e8, "5", "DCGM_FI_DEV_GPU_TEMP", 1.0)))
    )
    assert "1 more lie outside of the run’s time" in page.text("gpus")
    assert data["nodes"][0]["charts"][0]["before"]["low"] >= 60.0


@pytest.mark.slow
def test_five_hundred_nodes_do_not_break_it(tmp_path):
    template = next(t.event for t in build.passing() if isinstance(t.event, AlertSeen) and t.event.expected)
    others = []
    for node in (f"gpu-node-{n:04d}" for n in range(500)):
        told = {"node": node, "labels": template.labels | {"node": node}, "expected": False, "state": "firing"}
        others.append(build.Timed(20, template.model_copy(update=told)))
    page = page_of(build.write(tmp_path, [*build.passing(), *others], build.frames()))
    assert "500 that were no target changed" in page.text("blast-radius")
    assert "more signals are not drawn" in page.text("timeline")
    assert "events from the middle are left out" in page.text("timeline")
    assert len(page.html) < 2_000_000


def test_many_targets_are_drawn_as_far_as_a_page_goes(tmp_path):
    names = [f"gpu-node-{n:02d}" for n in range(20)]
    chosen = build.replacing(
        build.passing(), lambda e: e.kind == "targets_chosen", targets=tuple(build.Target(node=name) for name in names)
    )
    page = page_of(build.write(tmp_path, chosen, build.frames()))
    assert "Only the first 6 targets are drawn" in page.text("gpus")
    assert "gpu-node-19" in page.text("gpus")
