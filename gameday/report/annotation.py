"""A run's fault window as one annotation of a dashboard."""

from __future__ import annotations

from datetime import datetime, timedelta

from markupsafe import escape
from pydantic import BaseModel, ConfigDict

from gameday.report.run_folder import RunFolder
from gameday.report.safe_text import visible


class Annotation(BaseModel):
    """`text` is HTML to Grafana: escaped here."""

    model_config = ConfigDict(frozen=True)

    start: datetime
    end: datetime
    text: str
    tags: tuple[str, ...]


def annotation_of(run: RunFolder) -> Annotation | None:
    """Return the run's fault window as a Grafana annotation; None where no fault went in."""
    window, started = run.fault_window(), run.started
    if window is None or started is None or run.zero is None:
        return None
    title = run.plan.title if run.plan else started.plan_name
    cluster = started.cluster_name or started.cluster
    text = f"GPU game-day: {visible(title)} on {visible(', '.join(run.target_names))} ({run.result.outcome})"
    return Annotation(
        start=run.zero + timedelta(seconds=window[0]),
        end=run.zero + timedelta(seconds=window[1]),
        text=str(escape(text)),
        tags=(
            "gameday",
            f"run:{visible(started.run_id)}",
            f"plan:{visible(started.plan_name)}",
            f"cluster:{visible(cluster)}",
        ),
    )
