"""The nightly's results over all rounds of its folder, as one JSON file and one page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from jinja2 import Environment, FileSystemLoader

from tests.nightly.record import WANTED_PERCENT, Record, Test

JSON, PAGE = "nightly.json", "nightly.html"


def write(folder: Path, record: Record, cannot: Mapping[str, str]) -> None:
    """Write both.

    Args:
        folder: The nightly's.
        record: Its rounds.
        cannot: Suites that cannot be played here, each with the reason.
    """
    listed = [_row(test) for test in record.tests]
    content = {"rounds": list(record.rounds), "not_played": dict(cannot), "tests": listed}
    (folder / JSON).write_text(json.dumps(content, indent=1), encoding="utf-8")
    templates = Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, trim_blocks=True)
    page = templates.get_template("page.html").render(record=record, cannot=cannot, wanted=WANTED_PERCENT)
    (folder / PAGE).write_text(page, encoding="utf-8")


def _row(test: Test) -> dict[str, object]:
    return {
        "test": test.id,
        "passed": test.passed,
        "failed": test.failed,
        "skipped": test.skipped,
        "percent": round(test.percent, 2),
        "last_failure": test.why,
        "last_failed_in_round": test.failed_in or None,
        "quarantined": test.is_quarantined,
    }
