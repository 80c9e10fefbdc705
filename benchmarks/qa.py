"""QA's power to find: which length of burn-in finds which weakness of a GPU, on the model's physics.

One GPU of eight is weakened; the real QA then reads the model and judges it, with the model's time made to pass. The
figure of each cell is the checks that failed, on the weak GPU. A healthy node is played for every length, too: there a
check that fails would be a false alarm.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable
from dataclasses import dataclass

from gameday.agent.qa import readings
from gameday.agent.qa.checks import judge
from gameday.agent.task import Proof
from gameday.plan.qa import QaFloors
from gameday.rehearsal.nodes.gpus import GpuFleet
from gameday.rehearsal.nodes.in_process import ModelHost

GPUS = 8
WEAK = (0, 3)
LENGTHS_S = (1, 10, 30, 60, 120, 300, 600)
_MARKER = "benchmark-qa-0"


@dataclass(frozen=True)
class Weakness:
    """A weakness, and how the model gets it."""

    name: str
    put_in: Callable[[GpuFleet], None]


def _set(array: str, value: float) -> Callable[[GpuFleet], None]:
    def put_in(fleet: GpuFleet) -> None:
        getattr(fleet, array)[WEAK] = value

    return put_in


WEAKNESSES = (
    Weakness("none", lambda fleet: None),
    Weakness("heat: cooling 35 % worse", _set("thermal_resistance", 1.35)),
    Weakness("heat: cooling 40 % worse", _set("thermal_resistance", 1.4)),
    Weakness("heat: cooling 80 % worse", _set("thermal_resistance", 1.8)),
    Weakness("clock at most 1600 MHz", _set("clock_ceiling", 1600)),
    Weakness("clock at most 900 MHz", _set("clock_ceiling", 900)),
    Weakness("half of the memory's bandwidth", _set("memory_share", 0.5)),
    Weakness("85 % of the memory's bandwidth", _set("memory_share", 0.85)),
    Weakness("one wrong bit in each 100 products", _set("wrong_every", 100)),
    Weakness("one wrong bit in each 1000 products", _set("wrong_every", 1000)),
    Weakness("wrong bits above 69 °C only", _set("wrong_above_c", 69)),
    Weakness("a word of memory with a bad bit", _set("bad_word_at", 1 << 30)),
    Weakness("6 of 18 NVLinks down", _set("nvlinks", 12)),
    Weakness("half of the link's bandwidth", _set("link_share", 0.5)),
)


def find(weakness: Weakness, seconds: float) -> tuple[str, ...]:
    """Return the checks that do not pass with this weakness and a burn-in of so many seconds."""
    host = ModelHost(GPUS)
    weakness.put_in(host.fleet)
    proof = Proof(floors=QaFloors(), burn_in_s=None, virtual_burn_in_s=seconds)
    proof = proof.model_copy(update={"burn_in_s": seconds})
    pace = readings.Pace(host.clock, host.clock.pass_by)
    read = readings.read_node(host, _MARKER, GPUS, threading.Event(), proof, pace)
    found = [(one.check, one.gpu) for one in judge(read, proof.floors) if not one.ok]
    wrong = [one for one in found if one[1] not in (None, WEAK[1])]
    assert not wrong, f"QA blames healthy GPUs: {wrong}"
    return tuple(check for check, _ in found)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=float, nargs="+", default=LENGTHS_S, metavar="SECONDS")
    lengths = parser.parse_args().lengths
    readings.LOAD_S = 0.05  # real seconds; the model's rates do not depend on them
    print("| weakness | " + " | ".join(f"{length:g} s" for length in lengths) + " |")
    print("|---" * (len(lengths) + 1) + "|")
    for weakness in WEAKNESSES:
        cells = (", ".join(find(weakness, length)) or "–" for length in lengths)
        print(f"| {weakness.name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
