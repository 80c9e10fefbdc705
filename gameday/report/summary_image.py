"""A run on one image of the size that chats and link previews show: outcome, reason, durations."""

from __future__ import annotations

import io

from PIL import Image, ImageDraw, ImageFont
from PIL.ImageFont import FreeTypeFont
from ttf_opensans import OPENSANS_BOLD, OPENSANS_REGULAR, TTFFont

from gameday.checks.facts import seconds_text
from gameday.checks.outcome import RunOutcome
from gameday.checks.verdict import Status
from gameday.report.formatting import NOT_MEASURED, sentence
from gameday.report.safe_text import LONGEST, cut, visible
from gameday.report.summary import RunDuration, Summary
from gameday.values.results import Cleanliness

_WIDTH, _HEIGHT = 1200, 630
"""Pixels of Open Graph images (1.91 : 1), which Slack, Teams and others show whole."""
_LEFT, _RIGHT = 72, 1152
_PAPER, _INK, _MUTED, _RULE = "#fdfdfc", "#16202a", "#5a6773", "#d8dee4"
_GOOD, _BAD, _DOUBT, _STOP = "#1a6b45", "#b42318", "#8a5a00", "#5b4a8a"
# The colours are those of templates/report/style.css.
_OUTCOME = {
    RunOutcome.PASSED: _GOOD,
    RunOutcome.FAILED: _BAD,
    RunOutcome.UNKNOWN: _DOUBT,
    RunOutcome.ABORTED: _STOP,
    RunOutcome.REFUSED: _STOP,
}
_STATUS: dict[Status | None, str] = {Status.HELD: _GOOD, Status.BROKEN: _BAD, Status.UNKNOWN: _DOUBT}
_CLEANLINESS = {Cleanliness.CLEAN: _MUTED, Cleanliness.DIRTY: _BAD, Cleanliness.UNKNOWN: _DOUBT}
_ELLIPSIS = "…"
_DURATIONS_TOP = 440


def summary_image(run: Summary) -> bytes:
    """Return the image of a run as a PNG of 1200 × 630 pixels.

    Letters outside of Latin, Greek and Cyrillic show as empty boxes: Open Sans has no others.
    """
    image = Image.new("RGB", (_WIDTH, _HEIGHT), _PAPER)
    draw = ImageDraw.Draw(image)
    draw.rectangle((0, 0, 24, _HEIGHT), fill=_OUTCOME[run.outcome])
    where = f"GPU game-day on {run.cluster}, {run.started:%Y-%m-%d %H:%M} UTC"
    _lines(draw, 44, where, _font(OPENSANS_REGULAR, 26), _MUTED, 1)
    draw.text((_LEFT, 84), run.outcome.capitalize(), fill=_OUTCOME[run.outcome], font=_font(OPENSANS_BOLD, 76))
    state, face = f"cluster {run.cleanliness}", _font(OPENSANS_REGULAR, 30)
    draw.text((_RIGHT, 132), state, fill=_CLEANLINESS[run.cleanliness], font=face, anchor="rm")
    below = _lines(draw, 196, run.title, _font(OPENSANS_BOLD, 42), _INK, 2)
    _lines(draw, below + 14, run.why, _font(OPENSANS_REGULAR, 27), _INK, 3)
    draw.line((_LEFT, _DURATIONS_TOP - 14, _RIGHT, _DURATIONS_TOP - 14), fill=_RULE, width=2)
    width = (_RIGHT - _LEFT) / max(1, len(run.numbers))
    for place, one in enumerate(run.numbers):
        _duration(draw, _LEFT + place * width, width - 12, one)
    last = f"{run.plan}, run {run.run_id}, {', '.join(run.targets) or 'no targets'}"
    _lines(draw, 582, last, _font(OPENSANS_REGULAR, 21), _MUTED, 1)
    png = io.BytesIO()
    image.save(png, "PNG", optimize=True)
    return png.getvalue()


def _duration(draw: ImageDraw.ImageDraw, left: float, width: float, one: RunDuration) -> None:
    """Draw a duration, its name and its bound; it has the colour of its verdict."""
    top, small = _DURATIONS_TOP, _font(OPENSANS_REGULAR, 21)
    value, size = (NOT_MEASURED, 26) if one.seconds is None else (seconds_text(one.seconds), 38)
    color = _MUTED if one.seconds is None else _STATUS.get(one.status, _INK)
    draw.text((left, top + 44), value, fill=color, font=_font(OPENSANS_BOLD, size), anchor="ls")
    for below, text in ((68, sentence(one.measure)), (96, one.bound)):
        draw.text((left, top + below), _fitting(draw, text, small, width), fill=_MUTED, font=small)


def _lines(draw: ImageDraw.ImageDraw, top: float, text: str, font: FreeTypeFont, color: str, most: int) -> float:
    """Write a text over the image's width, in `most` lines at most, and return where the next line would begin."""
    rest = visible(cut(" ".join(text.split()), LONGEST)).split(" ")
    height = font.size * 1.3
    for number in range(most):
        if not rest:
            break
        count = len(rest)
        if number < most - 1:
            while count > 1 and draw.textlength(" ".join(rest[:count]), font=font) > _RIGHT - _LEFT:
                count -= 1
        line = _fitting(draw, " ".join(rest[:count]), font, _RIGHT - _LEFT)
        draw.text((_LEFT, top), line, fill=color, font=font)
        top, rest = top + height, rest[count:]
    return top


def _fitting(draw: ImageDraw.ImageDraw, text: str, font: FreeTypeFont, width: float) -> str:
    """Return the text, shortened until it fits into a width."""
    if draw.textlength(text, font=font) <= width:
        return text
    while text and draw.textlength(text + _ELLIPSIS, font=font) > width:
        text = text[:-1]
    return text.rstrip() + _ELLIPSIS


def _font(face: TTFFont, size: float) -> FreeTypeFont:
    return ImageFont.truetype(face.path, size)
