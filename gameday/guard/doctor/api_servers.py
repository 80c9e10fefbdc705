"""The API servers that a load meets, as Prometheus scrapes them."""

from __future__ import annotations

import json
from collections.abc import Iterator

from gameday.guard.doctor.prerequisite import Prerequisite
from gameday.observe.api_server_metrics import (
    API_SERVER_JOB,
    NOMINAL_SEATS,
    RESIDENT_MEMORY,
    SERVER_LABEL,
    STORAGE_BYTES,
)
from gameday.run.run import ReadOnlyRun


def check_api_servers(run: ReadOnlyRun) -> Iterator[Prerequisite]:
    """Yield the limits that a load meets: seats by priority level, the servers' memory (MB), and etcd's size (MB).

    Raises:
        AdapterError: Prometheus does not answer.
    """
    for metric, by, unit in (
        (NOMINAL_SEATS, "priority_level", 1.0),
        (RESIDENT_MEMORY, SERVER_LABEL, 1e6),
        (STORAGE_BYTES, SERVER_LABEL, 1e6),
    ):
        query = f"min by ({by}) ({metric.name}{{job={json.dumps(API_SERVER_JOB)}}})"
        found = sorted((sample.labels.get(by, ""), sample.value) for sample in run.servers.prometheus.query(query))
        values = ", ".join(f"{name} {value / unit:.0f}{' MB' if unit > 1 else ''}" for name, value in found)
        fix = "" if found else "let Prometheus scrape the API servers (docs/control-plane.md, What a cluster needs)"
        missing = None if metric is STORAGE_BYTES else False  # the run itself does not need it
        yield Prerequisite("prometheus", metric.name, True if found else missing, values or "no sample", fix)
