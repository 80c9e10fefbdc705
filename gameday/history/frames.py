"""The frames of a run: long-form observations, saved as Parquet beside the report.

Absent data is an absent row, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

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
    # one row per figure that NVML showed the agent, under the name of SampledGpu's field; source is the agent's pod
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
    # one row per line of the log store that concerns a target
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
    # one row per sample of an API server's own metrics; a label that the metric does not have is "", and labels holds
    # those without a column, as "name=value,name=value"
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
    # one row per sample of a scheduler's own metrics; le is the bucket of a histogram, labels the others, as
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


def empty(name: str) -> pd.DataFrame:
    """A frame of the right columns and types with no rows."""
    return _empty(name).copy()


@cache
def _empty(name: str) -> pd.DataFrame:
    return pd.DataFrame({column: pd.Series(dtype=dtype) for column, dtype in SCHEMAS[name].items()})


def conform(name: str, rows: pd.DataFrame | list[dict[str, object]]) -> pd.DataFrame:
    """Rows as the named frame's columns and types; raises KeyError for a missing column."""
    frame = pd.DataFrame(rows)
    return frame[list(SCHEMAS[name])].astype(SCHEMAS[name]) if len(frame) else empty(name)


@dataclass
class Frames:
    """The tables of a run; the columns of each are in SCHEMAS. A table that the run could not fill is empty."""

    metrics: pd.DataFrame = field(default_factory=lambda: empty("metrics"))
    nvml: pd.DataFrame = field(default_factory=lambda: empty("nvml"))
    alerts: pd.DataFrame = field(default_factory=lambda: empty("alerts"))
    logs: pd.DataFrame = field(default_factory=lambda: empty("logs"))
    pods: pd.DataFrame = field(default_factory=lambda: empty("pods"))
    api_server: pd.DataFrame = field(default_factory=lambda: empty("api_server"))
    scheduler: pd.DataFrame = field(default_factory=lambda: empty("scheduler"))

    def save(self, folder: Path) -> None:
        """Write <name>.parquet for every frame; raises OSError."""
        folder.mkdir(parents=True, exist_ok=True)
        for name in SCHEMAS:
            getattr(self, name).to_parquet(folder / f"{name}.parquet", index=False)

    @classmethod
    def load(cls, folder: Path) -> Frames:
        """Read what is there; a missing or unreadable frame is an empty one."""
        frames = cls()
        for name in SCHEMAS:
            try:
                setattr(frames, name, conform(name, pd.read_parquet(folder / f"{name}.parquet")))
            except (OSError, ValueError, KeyError):
                continue
        return frames
