"""`dcgmi diag -r LEVEL -j` on the model: the form of DCGM 4.6's JSON, and a few of its tests.

The model has one test of each category. Names, categories and keys are DCGM's (docs/sources.md, DCGM diag), and so are
the floors of the tests; the texts of the warnings are ours.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gameday.host.base import GpuSample, LoadResult
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Printed

VERSION = "4.6.0"
_ERROR = 226
"""Exit status for a failed test: DCGM_ST_NVVS_ERROR, -30, cut to a byte."""
_PCIE_GENERATION, _PCIE_LANES, _MEMORY_GBS = 3, 16, 1905
_LOAD_S = 0.2


@dataclass(frozen=True)
class _Test:
    """A test of the model: from a sample, and a load if the level has one, to a warning; empty for a pass."""

    level: int
    name: str
    category: str
    warning: Callable[[GpuSample, LoadResult | None], str]


def _software(gpu: GpuSample, _: LoadResult | None) -> str:
    if gpu.lost:
        return "NVML does not answer for this GPU"
    if gpu.row_remap_pending or gpu.row_remap_failure:
        return "a row remap is pending, or has failed"
    return "" if gpu.persistence_mode else "persistence mode is off"


def _pcie(gpu: GpuSample, _: LoadResult | None) -> str:
    slow = (gpu.pcie_generation or 0) < _PCIE_GENERATION or (gpu.pcie_width or 0) < _PCIE_LANES
    return f"PCIe generation {gpu.pcie_generation}, {gpu.pcie_width} lanes" if slow else ""


def _memory(_: GpuSample, load: LoadResult | None) -> str:
    return load.detail if load and load.gemm_tflops is None else ""


def _diagnostic(_: GpuSample, load: LoadResult | None) -> str:
    return f"{load.wrong_results} elements are wrong" if load and load.wrong_results else ""


def _bandwidth(_: GpuSample, load: LoadResult | None) -> str:
    slow = load and (load.memory_bandwidth_gbs or 0) < _MEMORY_GBS
    return f"{load.memory_bandwidth_gbs} GB/s is below {_MEMORY_GBS}" if load and slow else ""


_TESTS = (
    _Test(1, "software", "Deployment", _software),
    _Test(2, "memory", "Hardware", _memory),
    _Test(3, "diagnostic", "Hardware", _diagnostic),
    _Test(2, "pcie", "Integration", _pcie),
    _Test(3, "memory_bandwidth", "Stress", _bandwidth),
)


async def run_tests(machine: Machine, level: int) -> Printed:
    """Run the level's tests on every GPU that the driver knows."""
    if not machine.cache.collecting[machine.index]:
        return _refused("Unable to run diagnostic while metrics monitoring is paused")
    samples = machine.samples()
    loads: dict[int, LoadResult] = {}
    if level > 1:
        results = await asyncio.gather(*(machine.measure_load(gpu.index, _LOAD_S) for gpu in samples))
        loads = {result.gpu: result for result in results}
    categories: dict[str, list[Mapping[str, object]]] = {}
    failed = False
    for test in _TESTS:
        if test.level <= level:
            warnings = {gpu.index: test.warning(gpu, loads.get(gpu.index)) for gpu in samples}
            categories.setdefault(test.category, []).append(_printed(test.name, warnings))
            failed = failed or any(warnings.values())
    report = [{"category": name, "tests": tests} for name, tests in categories.items()]
    body = {"DCGM Diagnostic": {"test_categories": report}, "metadata": {"version": VERSION}}
    return Printed(json.dumps(body, indent=3) + "\n", exit_status=_ERROR if failed else 0)


def _refused(why: str) -> Printed:
    """Return the output of a diagnosis that did not run."""
    body = {"DCGM Diagnostic": {"runtime_error": why, "version": VERSION}}
    return Printed(json.dumps(body, indent=3) + "\n", exit_status=_ERROR)


def _printed(name: str, warnings: Mapping[int, str]) -> Mapping[str, object]:
    results = [
        {"entity_group": "GPU", "entity_group_id": 0, "entity_id": gpu, **_status(warning)}
        for gpu, warning in warnings.items()
    ]
    return {"name": name, "results": results, "test_summary": _status(next(filter(None, warnings.values()), ""))}


def _status(warning: str) -> Mapping[str, object]:
    if not warning:
        return {"status": "Pass"}
    error = {"error_category": 0, "error_id": 1, "error_severity": 1, "warning": warning}
    return {"status": "Fail", "warnings": [error]}
