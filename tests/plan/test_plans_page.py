"""The page docs/plans.md has every key of the plan's models."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gameday.documents.fields import DocumentModel
from gameday.expect.docs import page
from gameday.expect.workloads import ExpectedWorkloads
from gameday.plan.arms import Arms
from gameday.plan.expectations import Expectations
from gameday.plan.models import Recovery
from gameday.plan.purpose import Purpose
from gameday.plan.qa import Qa, QaFloors
from gameday.plan.rehearsal import RehearsalSettings
from gameday.plan.settings import Settings
from gameday.plan.targets import Baseline
from gameday_control_plane.expect.control_plane import ExpectedApiCanary, ExpectedContainment
from gameday_control_plane.settings import FlowControl

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "plans.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "model",
    [
        Arms,
        Purpose,
        Baseline,
        Expectations,
        ExpectedApiCanary,
        ExpectedContainment,
        ExpectedWorkloads,
        FlowControl,
        Recovery,
        Qa,
        QaFloors,
        RehearsalSettings,
        Settings,
    ],
)
def test_every_key_has_a_row_in_the_page(model: type[DocumentModel]) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("| `")]
    missing = [
        key for key in model.model_fields if not any(re.search(rf"[`.]{key}[`.\[]", row.split("|")[1]) for row in rows)
    ]
    assert missing == []


@pytest.mark.parametrize("floor", QaFloors.model_fields)
def test_the_page_has_the_defaults_of_the_floors(floor: str) -> None:
    (row,) = [line for line in PAGE.splitlines() if re.match(rf"\| (`\w+`, )*`{floor}`", line)]
    assert row.split("|")[2].strip() == f"`{json.dumps(QaFloors.model_fields[floor].default)}`"


def test_the_page_of_the_signals_is_current() -> None:
    assert (DOCS / "expectations.md").read_text(encoding="utf-8") == page(), "run: make docs"
