"""The cluster's own repair, hop by hop, from the fault to the node at work again; ours by plan, and a foreign stack's.

Prints the median and the range of each hop over the runs. With two control planes (`--cluster embedded lab`) both are
run by turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from gameday.history.events import RepairHopSeen
from gameday.history.journal import read_history
from gameday.values.results import RepairHop

_PLANS = ["hands-off-gpu-fell-off-the-bus", "hands-off-double-bit-ecc"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--plans", nargs="+", default=_PLANS)
    parser.add_argument("--cluster", nargs="+", default=["embedded"], choices=["embedded", "lab"])
    options = parser.parse_args()
    took: dict[tuple[str, str], dict[str, list[float]]] = {}
    for _ in range(options.runs):
        for plan in options.plans:
            for cluster in options.cluster:
                hops = took.setdefault((plan, cluster), {})
                for name, seconds in _one_run(plan, cluster).items():
                    hops.setdefault(name, []).append(seconds)
    for (plan, cluster), hops in took.items():
        print(f"{plan}, {cluster}")
        for name, values in hops.items():
            print(f"  {name:<16}{statistics.median(values):8.2f} s   {min(values):.2f} to {max(values):.2f}")


def _one_run(plan: str, cluster: str) -> dict[str, float]:
    """Rehearse a plan; return the seconds of each hop, and of all."""
    with tempfile.TemporaryDirectory() as reports:
        argv = [sys.executable, "-m", "gameday.cli", "rehearse", plan, "--reports", reports, "--cluster", cluster]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"the rehearsal of {plan} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        seen = {
            hop.hop: hop.took_s for hop in read_history(next(Path(reports).glob("*/history.jsonl"))).of(RepairHopSeen)
        }
    return {**{str(hop): seen[hop] for hop in RepairHop}, "all": sum(seen.values())}


if __name__ == "__main__":
    main()
