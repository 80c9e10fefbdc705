"""`nvidia-smi --query-gpu` and `--query-compute-apps`: the columns, their units, and the CSV form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gameday.host.base import GpuSample
from gameday_rehearsal.nodes.gpus import POWER_LIMIT_MIN_W, POWER_LIMIT_W
from gameday_rehearsal.nodes.identity import DRIVER_VERSION, GpuIdentity
from gameday_rehearsal.nodes.machine import MIB, Machine
from gameday_rehearsal.nodes.programs.base import Printed

_INVALID = 2


@dataclass(frozen=True)
class _Column:
    unit: str
    read: Callable[[GpuSample, Machine], object]


def _watts(read: Callable[[GpuSample], float | None]) -> _Column:
    return _Column("W", lambda gpu, _: f"{read(gpu):.2f}")


def _mib(read: Callable[[GpuSample], int]) -> _Column:
    return _Column("MiB", lambda gpu, _: read(gpu) // MIB)


def _of(name: str, unit: str = "") -> _Column:
    """Return the column of a sample's own number, whole as the tool prints it."""
    return _Column(unit, lambda gpu, _: round(float(getattr(gpu, name))))


def _text(value: str) -> _Column:
    return _Column("", lambda _gpu, _machine: value)


_COLUMNS: dict[str, _Column] = {
    "index": _of("index"),
    "uuid": _Column("", lambda gpu, _: gpu.uuid),
    "name": _Column("", lambda gpu, _: gpu.name),
    "serial": _Column("", lambda gpu, machine: machine.gpus[gpu.index].serial),
    "count": _Column("", lambda _, machine: len(machine.known_gpus())),
    "pci.bus_id": _Column("", lambda gpu, machine: machine.gpus[gpu.index].bus_id),
    "driver_version": _text(DRIVER_VERSION),
    "pstate": _text("P0"),
    "persistence_mode": _Column("", lambda gpu, _: "Enabled" if gpu.persistence_mode else "Disabled"),
    "temperature.gpu": _of("temperature_c"),
    "temperature.memory": _of("memory_temperature_c"),
    "utilization.gpu": _of("utilization_pct", "%"),
    "utilization.memory": _Column("%", lambda gpu, _: round((gpu.utilization_pct or 0) * 0.62)),
    "enforced.power.limit": _watts(lambda gpu: gpu.power_limit_w),
    "power.draw": _watts(lambda gpu: gpu.power_w),
    "power.limit": _watts(lambda gpu: gpu.power_limit_w),
    "power.default_limit": _watts(lambda _: POWER_LIMIT_W),
    "power.min_limit": _watts(lambda _: POWER_LIMIT_MIN_W),
    "power.max_limit": _watts(lambda _: POWER_LIMIT_W),
    "clocks.current.sm": _of("sm_clock_mhz", "MHz"),
    "clocks.current.memory": _of("memory_clock_mhz", "MHz"),
    "clocks.max.sm": _of("sm_clock_max_mhz", "MHz"),
    "memory.total": _mib(lambda gpu: gpu.memory_total_bytes or 0),
    "memory.used": _mib(lambda gpu: gpu.memory_used_bytes or 0),
    "memory.free": _mib(lambda gpu: (gpu.memory_total_bytes or 0) - (gpu.memory_used_bytes or 0)),
    "ecc.mode.current": _Column("", lambda gpu, _: "Enabled" if gpu.ecc_mode else "Disabled"),
    "ecc.mode.pending": _Column("", lambda gpu, _: "Enabled" if gpu.ecc_mode_pending else "Disabled"),
    "ecc.errors.corrected.volatile.total": _of("ecc_sbe_volatile"),
    "ecc.errors.uncorrected.volatile.total": _of("ecc_dbe_volatile"),
    "ecc.errors.corrected.aggregate.total": _Column(
        "", lambda gpu, machine: machine.fleet.sbe_aggregate[machine.index, gpu.index]
    ),
    "ecc.errors.uncorrected.aggregate.total": _Column(
        "", lambda gpu, machine: machine.fleet.dbe_aggregate[machine.index, gpu.index]
    ),
    "pcie.link.gen.current": _of("pcie_generation"),
    "pcie.link.gen.max": _of("pcie_generation_max"),
    "pcie.link.width.current": _of("pcie_width"),
    "pcie.link.width.max": _of("pcie_width_max"),
    "clocks_event_reasons.active": _Column("", lambda gpu, _: f"0x{gpu.clocks_event_reasons:016X}"),
}
_ALIASES = {
    "gpu_uuid": "uuid",
    "gpu_name": "name",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks.sm": "clocks.current.sm",
    "clocks.mem": "clocks.current.memory",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "pcie.link.gen.gpucurrent": "pcie.link.gen.current",
    "pcie.link.gen.gpumax": "pcie.link.gen.max",
}
_APP_COLUMNS = ("gpu_uuid", "gpu_bus_id", "pid", "process_name", "name", "used_memory", "used_gpu_memory")


def query_gpus(gpus: Sequence[GpuSample], machine: Machine, query: str, fmt: str) -> Printed:
    names = [name.strip() for name in query.split(",")]
    units = []
    for name in names:
        column = _COLUMNS.get(_ALIASES.get(name, name))
        if column is None:
            return _unknown_field(name)
        units.append(column.unit)
    rows = [[str(_COLUMNS[_ALIASES.get(name, name)].read(gpu, machine)) for name in names] for gpu in gpus]
    return _csv(names, units, rows, fmt)


def query_apps(machine: Machine, gpus: Sequence[GpuIdentity], query: str, fmt: str) -> Printed:
    names = [name.strip() for name in query.split(",")]
    for name in names:
        if name not in _APP_COLUMNS:
            return _unknown_field(name)
    rows = []
    for gpu in gpus:
        used = machine.fleet.memory_used_mib[machine.index, gpu.index]
        for pid, program in machine.compute_processes(gpu.index).items():
            values = (gpu.uuid, gpu.bus_id, str(pid), program, program, str(used), str(used))
            row = dict(zip(_APP_COLUMNS, values, strict=True))
            rows.append([row[name] for name in names])
    return _csv(names, ["MiB" if "memory" in name else "" for name in names], rows, fmt)


def _csv(names: list[str], units: list[str], rows: list[list[str]], fmt: str) -> Printed:
    options = {option.strip() for option in fmt.split(",")}
    if "csv" not in options or options - {"csv", "noheader", "nounits"}:
        return Printed(
            stderr=f"--format={fmt[:60]!r} is not understood; use csv[,noheader][,nounits]\n", exit_status=_INVALID
        )
    with_units = "nounits" not in options
    lines = []
    if "noheader" not in options:
        lines.append([f"{name} [{unit}]" if unit else name for name, unit in zip(names, units, strict=True)])
    for row in rows:
        lines.append([f"{v} {unit}" if unit and with_units else v for v, unit in zip(row, units, strict=True)])
    return Printed("".join(", ".join(line) + "\n" for line in lines))


def _unknown_field(name: str) -> Printed:
    return Printed(f'Field "{name[:64]}" is not a valid field to query.\n\n', exit_status=_INVALID)
