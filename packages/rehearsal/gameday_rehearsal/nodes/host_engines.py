"""DCGM's fields as the host engines give them to their clients, regardless of what dcgm-exporter exports.

A real detector that reads DCGM asks the host engine itself (docs/sources.md, NVSentinel). A stand-in asks here, for
all nodes at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gameday_rehearsal.nodes.dcgm import BY_NAME, DcgmCache


def render(cache: DcgmCache, nodes: Sequence[str], names: Iterable[str]) -> str:
    """Return a line `NAME{node="…",gpu="…"} value` for each GPU that has the field; unknown names have none.

    The form is Prometheus' text without types, so that a reader leaves the names of counters unchanged.
    """
    cache.fleet.advance()
    lines = []
    for name in names:
        if field := BY_NAME.get(name):
            values = cache.read(field)
            lines += [
                f'{name}{{node="{nodes[node]}",gpu="{gpu}"}} {values[node, gpu]}'
                for node, gpu in np.argwhere(cache.shown(field)).tolist()
            ]
    return "".join(f"{line}\n" for line in lines)
