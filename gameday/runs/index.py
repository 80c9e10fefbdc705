"""The list of everything in a reports folder: one table, complete without a script, searched and filtered with one."""

from __future__ import annotations

import base64
import hashlib
from datetime import datetime
from pathlib import Path

from markupsafe import Markup

from gameday.plain_file import write_whole
from gameday.report.page import TEMPLATES, environment
from gameday.report.summary import DurationKind
from gameday.runs.catalog import RunCatalog

_MEASURES = (DurationKind.ALERT, DurationKind.TAINT, DurationKind.RETURN)


def render_index(reports: Path, catalog: RunCatalog, rendered_at: datetime) -> Path:
    """Write index.html into the reports folder; raises OSError."""
    templates = environment("runs")
    script = (TEMPLATES / "runs" / "index.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = str(templates.globals["policy"]).replace("script-src ", f"script-src 'sha256-{digest}' ", 1)
    page = templates.get_template("index.html").render(
        catalog=catalog,
        runs=[(run, catalog.cluster_of(run)) for run in catalog.runs],
        rendered_at=rendered_at,
        measures=_MEASURES,
        has_digest=(reports / "digest.html").is_file(),
        index_script=Markup(script),  # noqa: S704 our own file
        policy=policy,
    )
    path = reports / "index.html"
    write_whole(path, page)
    return path
