"""A fleet run's judgement and page over every GPU of a large cluster, with an earlier run to compare with."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

from benchmarks.scale_figures import Figure, in_a_child
from gameday.fleet.page import REPORT_FILE, render_fleet
from gameday.fleet.record import PROBES_FILE, ProbedGpu, add_probes, last_run_before
from tests.fleet import builders

_GPUS_PER_NODE = 8
_SLOW = 0.005
"""Share of the GPUs that are 10 % slow: of 400,000 of them 2,000. Our assumption."""
_DRIFTED = 0.002
_BATCH = 20_000


def fleet_figures(nodes: int) -> Iterator[Figure]:
    """Yield what judging the probes of so many nodes takes, and the size of what is written."""
    gpus = nodes * _GPUS_PER_NODE
    with tempfile.TemporaryDirectory(prefix="gameday-scale-") as made:
        earlier, folder = Path(made) / "fleet-0", Path(made) / "fleet-1"
        in_a_child(_write, earlier, gpus, 0)
        in_a_child(_write, folder, gpus, 1)
        began = builders.BEGAN + timedelta(days=1)
        record = builders.record(folder.name, against=str(earlier), nodes=nodes, started=began, ended=None)
        record.save(folder)
        yield Figure("gameday fleet: figures of every GPU", "", _megabytes(folder / PROBES_FILE))
        found = in_a_child(last_run_before, Path(made), record)
        yield Figure("gameday fleet: the run before is looked for", "", str(found))
        judged = in_a_child(_judge, folder)
        yield Figure("gameday fleet: judged and written", "", str(judged))
        yield Figure("gameday fleet: what it says", "", judged.answer)
        for name in ("fleet.html", REPORT_FILE, "frames/fleet.parquet"):
            yield Figure(f"gameday fleet: {name}", "", _megabytes(folder / name))


def _write(folder: Path, gpus: int, seed: int) -> None:
    """Write a fleet run's folder: an ordinary spread, and in the later one some GPUs that are slow or have drifted."""
    builders.record(folder.name, started=builders.BEGAN + timedelta(days=seed)).save(folder)
    for first in range(0, gpus, _BATCH):
        add_probes(folder, [_gpu(number, seed) for number in range(first, min(gpus, first + _BATCH))])


def _gpu(number: int, seed: int) -> ProbedGpu:
    own, now = random.Random(number), random.Random(f"{number} {seed}")
    rate = 740 * (1 + own.gauss(0, 0.0148)) * (1 + now.gauss(0, 0.002))
    slow, drifted = own.random() < _SLOW, seed and own.random() < _DRIFTED
    return builders.gpu(
        number,
        node=f"gpu-node-{number // _GPUS_PER_NODE:05d}",
        uuid=f"GPU-00000000-0000-0000-0000-{number:012d}",
        gemm_tflops=rate * (0.9 if slow else 1) * (0.95 if drifted else 1),
        memory_gbs=2900 * (1 + own.gauss(0, 0.004)),
        temperature_c=60 + now.gauss(0, 2),
        power_w=680 * (1 + now.gauss(0, 0.01)),
    )


def _judge(folder: Path) -> str:
    fleet = render_fleet(folder, builders.BEGAN).fleet
    drifted = len(fleet.drift.drifted) if fleet.drift else 0
    return f"{len(fleet.slow_gpus)} stragglers, {drifted} drifted"


def _megabytes(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:,.1f} MB"
