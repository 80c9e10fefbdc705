"""The weekly digest and the index of runs: read the reports folder, render, link."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

from prefect import flow
from prefect.client.schemas.objects import State
from prefect.states import Completed
from pydantic import Field

from gameday.tasks.digest import render_pages


@flow(name="digest", persist_result=False, validate_parameters=True)
def digest(
    reports: str = "reports",
    days: Annotated[int, Field(ge=1, le=3660)] = 7,
    publish_to: str | None = None,
) -> State[str]:
    """Show each plan's verdicts, what became slower, what went unnoticed, and what people promised to do.

    Args:
        reports: Folder of the runs' own folders.
        days: Length of the window that ends now, in days, 1 to 3660.
        publish_to: fsspec URL at which the runs are published, like s3://bucket/gamedays, for a copy of the pages.
            Empty: nowhere.
    """
    now = datetime.now(UTC)
    headline = render_pages(Path(reports), now - timedelta(days=days), now, publish_to)
    return Completed(message=headline, data=headline)
