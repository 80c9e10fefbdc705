"""A load in stages, and the memory that an API server was scraped with meanwhile."""

from __future__ import annotations

from datetime import timedelta

import pandas as pd

from gameday.history.frames import SCHEMAS, conform
from gameday_control_plane.checks.memory_slope import MEMORY
from gameday_control_plane.events import LoadStaged
from gameday_control_plane.values.api_requests import LoadStage
from tests.report.run_builder import NODE, START

LIST = 27_000_000
BASE = 500_000_000.0
COUNTS = (1, 2, 4, 8)


def staged(counts: tuple[int, ...] = COUNTS) -> LoadStaged:
    stages = [
        LoadStage(
            clients=clients,
            began_at=START + timedelta(seconds=20 * number),
            ended_at=START + timedelta(seconds=20 * number + 8),
            until=START + timedelta(seconds=20 * number + 19),
        )
        for number, clients in enumerate(counts)
    ]
    return LoadStaged(node=NODE, list_bytes=LIST, form="table", stages=tuple(stages))


def frame(samples: list[tuple[float, float]], server: str = "kube-apiserver", metric: str = MEMORY) -> pd.DataFrame:
    times = [pd.Timestamp(START + timedelta(seconds=at)) for at, _ in samples]
    columns = dict.fromkeys(SCHEMAS["api_server"], "") | {"time": times, "metric": metric, "server": server}
    return conform("api_server", pd.DataFrame(columns | {"value": [value for _, value in samples]}))


def scraped(*peaks: float, before: float = BASE) -> pd.DataFrame:
    """Return scrapes every 5 s: each stage at its peak from its beginning up to the next one's."""
    found = [(-5.0, before), *((20.0 * number + 5 * k, peak) for number, peak in enumerate(peaks) for k in range(4))]
    return frame(found)


def grown(k: float, base: float = BASE, counts: tuple[int, ...] = COUNTS) -> list[float]:
    return [base + k * clients * LIST for clients in counts]
