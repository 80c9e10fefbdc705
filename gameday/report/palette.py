"""The report's colours, named once and used by both the stylesheet and the charts.

Charts are static SVG with literal colours, since SVG drawn once cannot know
whether its reader prefers dark; the stylesheet swaps each literal by an
attribute selector. So a colour may stand for one role only.
"""

from __future__ import annotations

LIGHT = {
    "ink": "#16202a",
    "muted": "#5a6773",
    "rule": "#d8dee4",
    "other": "#b3bfca",
    "band": "#e9eef2",
    "fault": "#fbe6c8",
    "target": "#b4460f",
    "mark": "#3b4652",
    "baseline": "#7d8a96",
    "strip-0": "#e8edf1",
    "strip-1": "#c9380a",
}
DARK = {
    "ink": "#e6ebf0",
    "muted": "#9aa7b3",
    "rule": "#313b45",
    "other": "#536170",
    "band": "#1e272f",
    "fault": "#4a3312",
    "target": "#ff9a5c",
    "mark": "#c3cdd6",
    "baseline": "#8593a0",
    "strip-0": "#232d36",
    "strip-1": "#ff6b3d",
}


def stylesheet() -> str:
    """Rules that redraw the charts for dark screens; print keeps the light ones."""
    rules = [
        f'figure.chart svg [{attribute}="{LIGHT[role]}"]{{{attribute}:{DARK[role]}}}'
        for role in LIGHT
        for attribute in ("fill", "stroke")
    ]
    return "@media screen and (prefers-color-scheme:dark){" + "".join(rules) + "}\n"
