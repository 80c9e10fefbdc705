"""Our own parts at the size of docs/scale.md, on this machine: 50,000 nodes of eight GPUs, or what `--nodes` says.

Nothing here is a cluster of that size. The Node objects are real to the API server, and nobody runs behind them; the
GPUs' figures are made up. What is measured is what our code does with so many of them.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping

from benchmarks.scale_figures import Figure
from benchmarks.scale_fleet import fleet_figures
from benchmarks.scale_ledger import ledger_figures
from benchmarks.scale_rules import rule_figures
from benchmarks.scale_views import view_figures

_PARTS: Mapping[str, Callable[[int], Iterator[Figure]]] = {
    "fleet": fleet_figures,
    "views": view_figures,
    "ledger": ledger_figures,
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
