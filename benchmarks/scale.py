"""Our own parts at the size of docs/scale.md, on this machine: 50,000 nodes of eight GPUs, or what `--nodes` says.

Nothing here is a cluster of that size. The Node objects are real to the API server, and nobody runs behind them; the
GPUs' figures are made up. What is measured is what our code does with so many of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from benchmarks.node_health import idle, storm
from benchmarks.scale_figures import Figure
from benchmarks.scale_fleet import fleet_figures
from benchmarks.scale_ledger import ledger_figures
from benchmarks.scale_rules import rule_figures
from benchmarks.scale_season import season_figures
from benchmarks.scale_views import view_figures

_STORM = 0.05
"""Share of the nodes that fail at once: of 50,000 they are 2,500."""


def _health_figures(nodes: int) -> Iterator[Figure]:
    """Yield what the node-health controller takes."""
    yield Figure("node-health controller: a storm", "8 to 11 s for 2,500", storm(round(nodes * _STORM), nodes))
    for said in idle(nodes):
        yield Figure("node-health controller: at rest", "9 % of a core, below 740 MiB", said)


_PARTS: Mapping[str, Callable[[int], Iterator[Figure]]] = {
    "health": _health_figures,
    "fleet": fleet_figures,
    "views": view_figures,
    "ledger": ledger_figures,
    "season": season_figures,
    "rules": rule_figures,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=list(_PARTS))
    chosen = parser.parse_args()
    print("| what | on paper | simulated |\n|---|---|---|")
    for part in chosen.parts:
        for figure in _PARTS[part](chosen.nodes):
            print(f"| {figure.what} | {figure.on_paper} | {figure.simulated} |", flush=True)


if __name__ == "__main__":
    main()
