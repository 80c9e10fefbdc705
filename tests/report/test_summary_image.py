"""The image of a run: its size, its colour, and nothing outside its margins whatever the text."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from PIL import Image, ImageChops

from gameday.checks.outcome import RunOutcome
from gameday.cli import run
from gameday.exit_codes import ExitCode
from gameday.report.run_folder import load_run_folder
from gameday.report.summarise import summarise
from gameday.report.summary import Summary
from gameday.report.summary_image import summary_image
from tests.report.run_builder import VARIANTS, write

PAPER = (253, 253, 252)
ACCENT = {"passing": (26, 107, 69), "detector-off": (180, 35, 24), "killed": (138, 90, 0)}


@pytest.fixture
def summary(tmp_path: Path) -> Summary:
    write(tmp_path / "run", VARIANTS["passing"]())
    found = summarise(load_run_folder(tmp_path / "run"))
    assert found
    return found


def drawn(summary: Summary) -> Image.Image:
    return Image.open(io.BytesIO(summary_image(summary))).convert("RGB")


@pytest.mark.parametrize("variant", ACCENT)
def test_the_export_writes_an_image_in_the_colour_of_the_outcome(tmp_path: Path, variant: str) -> None:
    write(tmp_path / "run", VARIANTS[variant]())
    file = tmp_path / "run.png"
    assert run(["export", str(tmp_path / "run"), "--image", str(file)]) == ExitCode.PASSED
    image = Image.open(file)
    assert (image.format, image.size) == ("PNG", (1200, 630))
    assert image.getpixel((12, 300)) == ACCENT[variant]


def test_long_and_hostile_text_stays_within_the_margins(summary: Summary) -> None:
    long = "\x1b[31m" + "W" * 5_000
    update = {"title": f"{long} {long}", "why": long, "cluster": long, "targets": (long,) * 50, "plan": long}
    image = drawn(summary.model_copy(update=update))
    right = image.crop((1156, 0, 1200, 630))
    assert ImageChops.difference(right, Image.new("RGB", right.size, PAPER)).getbbox() is None


def test_what_differs_is_seen(summary: Summary) -> None:
    """Each fact of the summary changes the image in its own place; the outcome also colours the left edge."""
    before = drawn(summary)
    for update, place in (
        ({"outcome": RunOutcome.ABORTED}, (0, 0, 600, 630)),
        ({"title": "Another title"}, (72, 190, 1152, 260)),
        ({"why": "Another reason."}, (72, 250, 1152, 420)),
        ({"numbers": summary.numbers[:2]}, (72, 440, 1152, 570)),
        ({"targets": ("another-node",)}, (72, 575, 1152, 630)),
    ):
        box = ImageChops.difference(before, drawn(summary.model_copy(update=update))).getbbox()
        assert box, update
        assert place[0] <= box[0] and place[1] <= box[1] and box[2] <= place[2] and box[3] <= place[3], (update, box)
