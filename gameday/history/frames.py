"""The frames of a run: long-form observations, saved as Parquet beside the report.

Missing data is a missing row, never 0. Making the first frame imports pandas, which is as large as Prefect, so a
game-day collects columns, and makes frames of them when it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from gameday.plain_file import open_plain, refuse_link, written_whole

if TYPE_CHECKING:
    import pandas as pd

SCHEMAS: dict[str, dict[str, str]] = {
    # one row per sample; gpu is the NVML index as text, "" for node-wide metrics
    "metrics": {
        "time": "datetime64[ns, UTC]",
        "node": "string",
        "gpu": "string",
        "metric": "string",
        "value": "float64",
    },
    # one row per NVML figure from the agent, named after SampledGpu's field; source is the agent's pod
    "nvml": {
        "time": "datetime64[ns, UTC]",
        "node": "string",
        "gpu": "string",
        "metric": "string",
        "value": "float64",
        "source": "string",
    },
    # one row per scrape of ALERTS; state is pending or firing
    "alerts": {
        "time": "datetime64[ns, UTC]",
        "alert": "string",
        "state": "string",
        "node": "string",
        "severity": "string",
    },
    # one row per line of the log store about a target
    "logs": {"time": "datetime64[ns, UTC]", "node": "string", "line": "string"},
    # a pod's first sight and each change of its phase (Deleted: it is gone) or node; gpus it asks for
    "pods": {
        "time": "datetime64[ns, UTC]",
        "namespace": "string",
        "pod": "string",
        "node": "string",
        "phase": "string",
        "gpus": "Int64",
    },
    # one row per sample of an API server's own metrics; a label that the metric lacks is "", and labels holds those
    # without a column, as "name=value,name=value"
    "api_server": {
        "time": "datetime64[ns, UTC]",
        "server": "string",
        "metric": "string",
        "priority_level": "string",
        "flow_schema": "string",
        "verb": "string",
        "group": "string",
        "resource": "string",
        "code": "string",
        "labels": "string",
        "value": "float64",
    },
    # one row per sample of a scheduler's own metrics; le is the bucket of a histogram, labels holds the others, as
    # "name=value,name=value"
    "scheduler": {
        "time": "datetime64[ns, UTC]",
        "server": "string",
        "metric": "string",
        "le": "string",
        "labels": "string",
        "value": "float64",
    },
}

Columns = dict[str, list[object]]
"""The rows of a future frame, column by column."""

SORTED_BY: dict[str, list[str]] = {
    "metrics": ["metric", "node", "gpu", "time"],
    "api_server": [
        "metric",
        "server",
        "priority_level",
        "flow_schema",
        "verb",
        "group",
        "resource",
        "code",
        "labels",
        "time",
    ],
    "scheduler": ["metric", "server", "labels", "le", "time"],
}
"""Columns by which a frame's rows are sorted; the rows of other frames are in the order in which they were seen."""


def columns_of(name: str, rows: Iterable[Mapping[str, object]] = ()) -> Columns:
    """Return rows as the named frame's columns. Raises KeyError for a missing one."""
    columns: Columns = {column: [] for column in SCHEMAS[name]}
    for row in rows:
        for column, values in columns.items():
            values.append(row[column])
    return columns


def write_frames(tables: Mapping[str, Columns], folder: Path) -> None:
    """Write <name>.parquet for every frame, empty if there is no table; raises OSError."""
    Frames(**{name: frame_of(name, columns) for name, columns in tables.items()}).save(folder)


def frame_of(name: str, columns: Columns) -> pd.DataFrame:
    """Return the named frame from its columns, with its rows sorted."""
    frame = conform(name, columns)
    return frame.sort_values(SORTED_BY[name], ignore_index=True) if name in SORTED_BY else frame


def empty(name: str) -> pd.DataFrame:
    """Return a frame of the right columns and types without rows."""
    return _empty(name).copy()


@cache
def _empty(name: str) -> pd.DataFrame:
    import pandas as pd  # noqa: PLC0415

    return pd.DataFrame({column: pd.Series(dtype=dtype) for column, dtype in SCHEMAS[name].items()})


def conform(name: str, rows: pd.DataFrame | list[dict[str, object]] | Columns) -> pd.DataFrame:
    """Return rows as the named frame, with its columns and types. Raises KeyError for a missing column."""
    import pandas as pd  # noqa: PLC0415

    frame = pd.DataFrame(rows)
    return frame[list(SCHEMAS[name])].astype(SCHEMAS[name]) if len(frame) else empty(name)


@dataclass
class Frames:
    """The tables of a run; SCHEMAS has their columns. A table that the run could not fill is empty."""

    metrics: pd.DataFrame = field(default_factory=lambda: empty("metrics"))
    nvml: pd.DataFrame = field(default_factory=lambda: empty("nvml"))
    alerts: pd.DataFrame = field(default_factory=lambda: empty("alerts"))
    logs: pd.DataFrame = field(default_factory=lambda: empty("logs"))
    pods: pd.DataFrame = field(default_factory=lambda: empty("pods"))
    api_server: pd.DataFrame = field(default_factory=lambda: empty("api_server"))
    scheduler: pd.DataFrame = field(default_factory=lambda: empty("scheduler"))

    def save(self, folder: Path) -> None:
        """Write <name>.parquet for every frame. Raises OSError."""
        refuse_link(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for name in SCHEMAS:
            with written_whole(folder / f"{name}.parquet") as file:
                getattr(self, name).to_parquet(file, index=False)

    @classmethod
    def load(cls, folder: Path) -> Frames:
        """Read the frames of a folder; a missing or unreadable frame is empty.

        Raises:
            OSError: The folder is a symbolic link.
        """
        from pyarrow.parquet import ParquetFile  # noqa: PLC0415

        refuse_link(folder)
        frames = cls()
        for name in SCHEMAS:
            # Most runs leave some frames empty, and reading one takes longer than checking that it is empty.
            try:
                with open_plain(folder / f"{name}.parquet") as opened, ParquetFile(opened) as file:  # type: ignore[no-untyped-call]
                    if file.metadata.num_rows:
                        setattr(frames, name, conform(name, file.read().to_pandas()))
            except (OSError, ValueError, KeyError):
                continue
        return frames
