"""Draw metrics as static SVG: no script, no font, no address in it, so that the page needs nothing but itself.

Altair describes, vl-convert draws. Times are seconds since T+0, so that no
time zone can creep in.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt
import pandas as pd
import vl_convert
from altair.utils.schemapi import debug_mode
from markupsafe import Markup, escape

from gameday.report.palette import LIGHT

WIDTH, HEIGHT = 400, 118
ROW = 15
"""Height of one GPU's row in a strip, pixels."""
BUCKETS = 110
"""Points of a long series are thinned to the lowest and highest of this many stretches, so that no peak is lost."""
GAP_FACTOR = 3.0
"""A line is broken where samples are further apart than this many times the usual interval."""

_ELEMENTS = {"svg", "g", "path", "rect", "text", "line", "defs", "clipPath", "title", "desc", "tspan"}


@dataclass(frozen=True)
class Marker:
    """A moment drawn as a rule with its letter; `row` keeps the letters of near moments apart."""

    letter: str
    label: str
    at_s: float
    row: int = 0


@dataclass(frozen=True)
class Scene:
    """What all charts of one node share: the span in seconds since T+0, the fault window and the moments."""

    span: tuple[float, float]
    fault: tuple[float, float] | None
    markers: tuple[Marker, ...]
    target_gpu: str | None


def dodge(markers: Sequence[Marker], span: tuple[float, float]) -> tuple[Marker, ...]:
    """Letters that would overlap go to another row (of three)."""
    near = (span[1] - span[0]) * 0.035
    last = [float("-inf")] * 3
    placed = []
    for marker in sorted(markers, key=lambda m: m.at_s):
        row = next((i for i in range(3) if marker.at_s - last[i] >= near), 0)
        last[row] = marker.at_s
        placed.append(Marker(marker.letter, marker.label, marker.at_s, row))
    return tuple(placed)


# Altair checks each part against its schema as it is made, half of the time a report takes; what is drawn
# here is fixed but for numbers and names, and the tests draw it with the checks on.
_UNCHECKED = debug_mode(False)


@_UNCHECKED
def lines(samples: pd.DataFrame, scene: Scene, band: tuple[float, float, float] | None, describe: str) -> Markup:
    """One line per GPU over t, the target's on top; `samples` has t, gpu, value; `band` is p5, median, p95 before."""
    y = alt.Y("value:Q", scale=alt.Scale(zero=False, nice=True, padding=6), axis=_y_axis())
    layers = [*_backdrop(scene)]
    if band:
        low, middle, high = band
        whole = [{"from": scene.span[0], "to": scene.span[1], "value": low, "high": high, "middle": middle}]
        base = alt.Chart(alt.InlineData(values=whole)).encode(x=_x("from"), x2="to:Q")
        layers.append(base.mark_rect(color=LIGHT["band"]).encode(y=y, y2="high:Q"))
        layers.append(base.mark_rule(color=LIGHT["baseline"], strokeDash=[3, 3]).encode(y="middle:Q"))
    on_target = samples["gpu"] == scene.target_gpu
    for role, width, rows in (("other", 1, samples[~on_target]), ("target", 2, samples[on_target])):
        if len(rows):
            layers.append(_curves(rows, LIGHT[role], width).encode(x=_x("t"), y=y, detail="gpu:N"))
    layers += _moments(scene)
    return _draw(alt.LayerChart(layer=layers, width=WIDTH, height=HEIGHT), describe)


def _curves(rows: pd.DataFrame, colour: str, width: int) -> alt.Chart:
    points = [point for _, series in rows.groupby("gpu", sort=True) for point in _points(series)]
    chart = alt.Chart(alt.InlineData(values=points))
    if len(rows) == rows["gpu"].nunique():  # one sample each: a line through it would be invisible
        dots: alt.Chart = chart.mark_point(size=18, filled=True, opacity=1, color=colour)
        return dots
    line: alt.Chart = chart.mark_line(strokeWidth=width, color=colour, strokeJoin="round")
    return line


@_UNCHECKED
def strips(samples: pd.DataFrame, scene: Scene, prefix: str, describe: str) -> Markup:
    """One row per GPU; stretches with a value other than 0 are coloured and labelled with `prefix` and the value."""
    stretches = _stretches(samples)
    gpus = sorted({str(row["gpu"]) for row in stretches}, key=lambda gpu: (len(gpu), gpu))
    height = ROW * len(gpus)
    y = alt.Y("gpu:N", sort=gpus, scale=alt.Scale(paddingInner=0.25), axis=_y_axis(ticks=False))
    quiet = [row for row in stretches if row["value"] == 0]
    loud = [{**row, "label": f"{prefix}{row['value']:g}"} for row in stretches if row["value"] != 0]
    layers = _backdrop(scene)
    for rows, colour in ((quiet, "strip-0"), (loud, "strip-1")):
        if rows:
            chart = alt.Chart(alt.InlineData(values=rows))
            layers.append(chart.mark_rect(color=LIGHT[colour]).encode(x=_x("t"), x2="until:Q", y=y))
    if loud:
        words = alt.Chart(alt.InlineData(values=loud)).mark_text(align="left", dx=4, fontSize=10, color="#ffffff")
        layers.append(words.encode(x=_x("t"), y=y, text="label:N"))
    layers += _moments(scene)
    return _draw(alt.LayerChart(layer=layers, width=WIDTH, height=height), describe)


def _x(field: str) -> alt.X:
    axis = alt.Axis(
        title=None,
        tickCount=6,
        grid=False,
        labelExpr="datum.value == 0 ? 'T' : (datum.value < 0 ? '−' : '+') + format(abs(datum.value), ',') + ' s'",
    )
    return alt.X(f"{field}:Q", axis=axis, scale=alt.Scale(nice=False, zero=False))


def _y_axis(ticks: bool = True) -> alt.Axis:
    return alt.Axis(title=None, tickCount=4, domain=False, ticks=False, grid=ticks, labelPadding=6)


def _backdrop(scene: Scene) -> list[alt.Chart]:
    """The span itself (invisible, so that every chart has one x axis) and the shaded fault window."""
    whole = alt.Chart(alt.InlineData(values=[{"from": scene.span[0], "to": scene.span[1]}]))
    layers = [whole.mark_rect(opacity=0).encode(x=_x("from"), x2="to:Q")]
    if scene.fault:
        window = alt.Chart(alt.InlineData(values=[{"from": scene.fault[0], "to": scene.fault[1]}]))
        layers.append(window.mark_rect(color=LIGHT["fault"], opacity=1).encode(x=_x("from"), x2="to:Q"))
    return layers


def _moments(scene: Scene) -> list[alt.Chart]:
    if not scene.markers:
        return []
    layers = []
    for row in sorted({marker.row for marker in scene.markers}):
        rows = [{"at": m.at_s, "letter": m.letter} for m in scene.markers if m.row == row]
        base = alt.Chart(alt.InlineData(values=rows))
        layers.append(base.mark_rule(color=LIGHT["mark"], strokeWidth=0.8, opacity=0.75).encode(x=_x("at")))
        letters = base.mark_text(color=LIGHT["mark"], fontSize=10, fontWeight="bold", baseline="bottom")
        layers.append(letters.encode(x=_x("at"), y=alt.value(-3 - 11 * row), text="letter:N"))
    return layers


def _points(series: pd.DataFrame) -> list[dict[str, float | str | None]]:
    """One GPU's thinned samples in time order, with an empty point in every gap so that no line bridges it."""
    ordered = series.sort_values("t", ignore_index=True)
    steps = ordered["t"].diff()
    usual = float(steps[steps > 0].median()) if (steps > 0).any() else 0.0
    if len(ordered) > 2 * BUCKETS:
        stretch = pd.cut(ordered["t"], BUCKETS, labels=False)
        values = ordered.groupby(stretch)["value"]
        ordered = ordered.loc[sorted({*values.idxmin(), *values.idxmax()})]
        usual = max(usual, float(series["t"].max() - series["t"].min()) / BUCKETS)
    gpu = str(series["gpu"].iloc[0])
    points: list[dict[str, float | str | None]] = []
    before = float("inf")
    for t, value in zip(ordered["t"], ordered["value"], strict=True):
        if usual and t - before > GAP_FACTOR * usual:
            points.append({"t": round((t + before) / 2, 2), "value": None, "gpu": gpu})
        points.append({"t": round(float(t), 2), "value": float(f"{value:.5g}"), "gpu": gpu})
        before = float(t)
    return points


def _stretches(samples: pd.DataFrame) -> list[dict[str, float | str]]:
    """Runs of one value per GPU as from-until rows; a gap in the samples ends a run."""
    rows: list[dict[str, float | str]] = []
    for gpu, series in samples.groupby("gpu", sort=True):
        ordered = series.sort_values("t")
        steps = ordered["t"].diff()
        usual = float(steps[steps > 0].median()) if (steps > 0).any() else 1.0
        new_run = (ordered["value"] != ordered["value"].shift()) | (steps > GAP_FACTOR * usual)
        for _, run in ordered.groupby(new_run.cumsum()):
            until = float(run["t"].iloc[-1]) + usual
            rows.append(
                {"gpu": str(gpu), "t": float(run["t"].iloc[0]), "until": until, "value": float(run["value"].iloc[0])}
            )
    return rows


def _draw(chart: alt.LayerChart, describe: str) -> Markup:
    configured = (
        chart.configure(background="transparent", aria=False, font="sans-serif", padding=3)
        .configure_view(stroke=None)
        .configure_axis(
            labelColor=LIGHT["muted"],
            labelFontSize=10.5,
            gridColor=LIGHT["rule"],
            domainColor=LIGHT["rule"],
            tickColor=LIGHT["rule"],
            labelFlush=True,
        )
    )
    svg: str = vl_convert.vegalite_to_svg(configured.to_dict(validate=False), allowed_base_urls=[])
    foreign = set(re.findall(r"<\s*([A-Za-z][\w:-]*)", svg)) - _ELEMENTS
    if foreign:
        raise ValueError(f"the drawn chart holds elements that no chart needs: {', '.join(sorted(foreign))}")
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{escape(describe)}" ', 1))  # noqa: S704 checked above
