"""`nvidia-smi` on the model: list, query, reset, power cap, clock lock, persistence, ECC mode.

Messages and exit statuses are the real tool's where public reports show them; exit 15 is NVML_ERROR_GPU_IS_LOST, 2 an
invalid argument.
"""

from __future__ import annotations

import argparse
import asyncio

from gameday.host.base import GpuSample
from gameday_rehearsal.nodes.gpus import POWER_LIMIT_MIN_W, POWER_LIMIT_W, SM_CLOCK_MAX_MHZ, SM_CLOCK_MIN_MHZ
from gameday_rehearsal.nodes.identity import MODEL, GpuIdentity, seeded
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.programs.base import Options, Printed, Refused
from gameday_rehearsal.nodes.programs.nvidia_smi_query import query_apps, query_gpus

_INVALID = 2
_NOT_FOUND = 6
_LOST = 15
_RESET_REFUSED = 255
_SWITCH = {"1": True, "ENABLED": True, "0": False, "DISABLED": False}


async def nvidia_smi(args: list[str], machine: Machine) -> Printed:
    options = _parser().parse_args(args)
    gpus = _chosen(machine, options.id)
    if options.list:
        return Printed("".join(f"GPU {gpu.index}: {MODEL} (UUID: {gpu.uuid})\n" for gpu in gpus))
    _refuse_lost(machine, gpus)
    if options.query_compute_apps is not None:
        return query_apps(machine, gpus, options.query_compute_apps, options.format)
    if options.query_gpu is not None:
        return query_gpus(_samples(machine, gpus), machine, options.query_gpu, options.format)
    if options.gpu_reset:
        return await _reset(machine, gpus)
    return _set(machine, gpus, options)


def _set(machine: Machine, gpus: list[GpuIdentity], options: argparse.Namespace) -> Printed:
    if options.persistence_mode is not None:
        return _persistence(machine, gpus, options.persistence_mode)
    if options.ecc_config is not None:
        return _ecc(machine, gpus, options.ecc_config)
    if options.power_limit is not None:
        return _power_limit(machine, gpus, options.power_limit)
    if options.lock_gpu_clocks is not None:
        return _lock_clocks(machine, gpus, options.lock_gpu_clocks)
    if options.reset_gpu_clocks:
        return _unlock_clocks(machine, gpus)
    raise Refused(Printed(stderr="nvidia-smi: the virtual one has no summary; use -L or --query-gpu\n", exit_status=2))


def _parser() -> argparse.ArgumentParser:
    parser = Options("nvidia-smi", _INVALID)
    parser.add_argument("-i", "--id")
    parser.add_argument("-L", "--list-gpus", dest="list", action="store_true")
    parser.add_argument("--query-gpu")
    parser.add_argument("--query-compute-apps")
    parser.add_argument("--format", default="csv")
    parser.add_argument("-r", "--gpu-reset", action="store_true")
    parser.add_argument("-pm", "--persistence-mode")
    parser.add_argument("-e", "--ecc-config")
    parser.add_argument("-pl", "--power-limit", type=float)
    parser.add_argument("-lgc", "--lock-gpu-clocks")
    parser.add_argument("-rgc", "--reset-gpu-clocks", action="store_true")
    return parser


def _chosen(machine: Machine, wanted: str | None) -> list[GpuIdentity]:
    known = [gpu for gpu in machine.gpus if gpu.index in machine.known_gpus()]
    if wanted is None:
        return known
    chosen = []
    for name in wanted.split(","):
        gpu = next((gpu for gpu in known if _is_called(gpu, name.strip())), None)
        if gpu is None:
            raise Refused(Printed(f"No devices were found matching {name.strip()[:64]!r}\n", exit_status=_NOT_FOUND))
        chosen.append(gpu)
    return chosen


def _is_called(gpu: GpuIdentity, name: str) -> bool:
    """Return True if the name is the GPU's index, UUID, or PCI address in any of its forms."""
    address = name.lower().removeprefix("0000").removeprefix("0000:").removeprefix(":")
    own = gpu.pci.removeprefix("0000:")
    return name in (str(gpu.index), gpu.uuid) or address in (own, f"{own}.0")


def _refuse_lost(machine: Machine, gpus: list[GpuIdentity]) -> None:
    for gpu in gpus:
        if machine.fleet.lost[machine.index, gpu.index]:
            raise Refused(
                Printed(
                    f"Unable to determine the device handle for GPU{gpu.index}: {gpu.bus_id.removeprefix('0000')}: "
                    "GPU is lost.  Reboot the system to recover this GPU\n",
                    exit_status=_LOST,
                )
            )


def _samples(machine: Machine, gpus: list[GpuIdentity]) -> list[GpuSample]:
    wanted = {gpu.index for gpu in gpus}
    return [sample for sample in machine.samples() if sample.index in wanted]


async def _reset(machine: Machine, gpus: list[GpuIdentity]) -> Printed:
    # Persistence mode keeps a GPU open, by the daemon or by the driver itself.
    persistent = machine.fleet.persistence[machine.index]
    busy = [gpu for gpu in gpus if persistent[gpu.index] or machine.gpu_users(gpu.index)]
    if busy:
        listed = "".join(f"  GPU {gpu.bus_id}: In use by another client\n" for gpu in busy)
        devices = "1 device is" if len(busy) == 1 else f"{len(busy)} devices are"
        return Printed(
            f"The following GPUs could not be reset:\n{listed}\n"
            f"{devices} currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, "
            "graphics application such as an X server, or a monitoring application such as another instance of "
            "nvidia-smi). Please first kill all processes using this device and all compute applications running in "
            "the system.\n",
            exit_status=_RESET_REFUSED,
        )
    for gpu in gpus:
        await asyncio.sleep(seeded(gpu.uuid, machine.boot_id).uniform(1.0, 1.8))
        machine.fleet.reset((machine.index, gpu.index))
    done = "".join(f"GPU {gpu.bus_id} was successfully reset.\n" for gpu in gpus)
    return Printed(f"{done}All done.\n")


def _persistence(machine: Machine, gpus: list[GpuIdentity], mode: str) -> Printed:
    if mode.upper() not in _SWITCH:
        return Printed(stderr=f"Invalid persistence mode {mode[:20]!r}: 0 or 1\n", exit_status=_INVALID)
    wanted, said = _SWITCH[mode.upper()], []
    for gpu in gpus:
        cell = (machine.index, gpu.index)
        word = "Enabled" if wanted else "Disabled"
        if machine.fleet.persistence[cell] == wanted:
            said.append(f"Persistence mode is already {word} for GPU {gpu.bus_id}.\n")
        else:
            said.append(f"{word} persistence mode for GPU {gpu.bus_id}.\n")
        machine.fleet.persistence[cell] = wanted
    return Printed("".join(said) + "All done.\n")


def _ecc(machine: Machine, gpus: list[GpuIdentity], mode: str) -> Printed:
    if mode.upper() not in _SWITCH:
        return Printed(stderr=f"Invalid ECC mode {mode[:20]!r}: 0 or 1\n", exit_status=_INVALID)
    wanted, said = _SWITCH[mode.upper()], []
    for gpu in gpus:
        cell, word = (machine.index, gpu.index), "Enabled" if wanted else "Disabled"
        if machine.fleet.ecc_pending[cell] == wanted:
            said.append(f"ECC support is already {word} for GPU {gpu.bus_id}.\n")
        else:
            said.append(f"{word} ECC support for GPU {gpu.bus_id}.\n")
        machine.fleet.ecc_pending[cell] = wanted
    return Printed("".join(said) + "All done.\nReboot required.\n")


def _power_limit(machine: Machine, gpus: list[GpuIdentity], watts: float) -> Printed:
    said = []
    for gpu in gpus:
        if not POWER_LIMIT_MIN_W <= watts <= POWER_LIMIT_W:
            return Printed(
                f"Provided power limit {watts:.2f} W is not a valid power limit which should be between "
                f"{POWER_LIMIT_MIN_W:.2f} W and {POWER_LIMIT_W:.2f} W for GPU {gpu.bus_id}\n"
                "Terminating early due to previous errors.\n",
                exit_status=_INVALID,
            )
        machine.fleet.advance()
        before = float(machine.fleet.power_limit[machine.index, gpu.index])
        machine.fleet.power_limit[machine.index, gpu.index] = watts
        said.append(f"Power limit for GPU {gpu.bus_id} was set to {watts:.2f} W from {before:.2f} W.\n")
    return Printed("".join(said) + "All done.\n")


def _lock_clocks(machine: Machine, gpus: list[GpuIdentity], text: str) -> Printed:
    parts = text.split(",")
    if len(parts) > 2 or not all(part.strip().isdecimal() for part in parts):
        return Printed(
            stderr=f"Invalid clock range {text[:40]!r}: minGpuClock,maxGpuClock in MHz\n", exit_status=_INVALID
        )
    floor, ceiling = int(parts[0]), int(parts[-1])
    if floor > ceiling:
        return Printed(stderr=f"Invalid clock range: {floor} MHz is above {ceiling} MHz\n", exit_status=_INVALID)
    said = []
    for gpu in gpus:
        machine.fleet.advance()
        cell = (machine.index, gpu.index)
        machine.fleet.clock_floor[cell] = min(max(floor, SM_CLOCK_MIN_MHZ), SM_CLOCK_MAX_MHZ)
        machine.fleet.clock_ceiling[cell] = min(max(ceiling, SM_CLOCK_MIN_MHZ), SM_CLOCK_MAX_MHZ)
        said.append(f'GPU clocks set to "(gpuClkMin {floor}, gpuClkMax {ceiling})" for GPU {gpu.bus_id}\n')
    return Printed("".join(said) + "All done.\n")


def _unlock_clocks(machine: Machine, gpus: list[GpuIdentity]) -> Printed:
    machine.fleet.advance()
    for gpu in gpus:
        machine.fleet.clock_floor[machine.index, gpu.index] = 0.0
        machine.fleet.clock_ceiling[machine.index, gpu.index] = SM_CLOCK_MAX_MHZ
    return Printed("All done.\n")
