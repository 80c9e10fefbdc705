"""The time and size of a run's report: for an ordinary run, and for a frame of a million samples.

    .venv/bin/python -m benchmarks.report [RUN_FOLDER]

Without a folder: a game-day as the tests build it, eight GPUs, seven metrics, 106 seconds. Render time is without
Python's imports, which `import` gives; the first render compiles the templates.
"""

from __future__ import annotations

import resource
import shutil
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd

ROWS = 1_000_000


def main(folder: str = "") -> None:
    began = time.perf_counter()
    from gameday.report.render import render  # noqa: PLC0415
    from tests.report import run_builder as build  # noqa: PLC0415

    print(f"import {time.perf_counter() - began:.2f} s")
    with tempfile.TemporaryDirectory() as scratch:
        ordinary = Path(scratch) / "ordinary"
        if folder:
            shutil.copytree(folder, ordinary)
        else:
            build.write(ordinary, build.passing(), build.frames())
        large = build.write(Path(scratch) / "large", build.passing(), build.Frames(metrics=_million(build)))
        for name, run in (("ordinary run", ordinary), ("ordinary run", ordinary), (f"{ROWS:,} samples", large)):
            began, cpu = time.perf_counter(), time.process_time()
            rendered = render(run, datetime.now(UTC))
            took, cpu = time.perf_counter() - began, time.process_time() - cpu
            sizes = (
                f"{rendered.html.stat().st_size / 1e3:,.0f} kB HTML, {rendered.json.stat().st_size / 1e3:,.0f} kB JSON"
            )
            print(f"{name}: {took:.2f} s ({cpu:.2f} s of processor), {sizes}")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:,.0f} MB")


def _million(build) -> pd.DataFrame:  # type: ignore[no-untyped-def]  # noqa: ANN001
    """Six metrics of eight GPUs over the run's minutes, as fine as it takes."""
    rng = np.random.default_rng(1)
    metrics = [
        f"DCGM_FI_DEV_{name}" for name in ("GPU_TEMP", "POWER_USAGE", "GPU_UTIL", "SM_CLOCK", "FB_USED", "MEM_CLOCK")
    ]
    n = ROWS // (8 * len(metrics))
    time_ = pd.date_range(build.at(-60), build.at(46), periods=n)
    parts = [
        pd.DataFrame({"time": time_, "node": build.NODE, "gpu": str(gpu), "metric": m, "value": rng.normal(60, 5, n)})
        for gpu in range(8)
        for m in metrics
    ]
    return build.conform("metrics", pd.concat(parts))


if __name__ == "__main__":
    main(*sys.argv[1:2])
