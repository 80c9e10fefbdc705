"""nccl-tests' `all_reduce_perf` on the model, and the `env` in front of it that sets its environment."""

from __future__ import annotations

import argparse
import asyncio

from gameday.errors import HostError
from gameday_rehearsal.nodes.identity import MODEL
from gameday_rehearsal.nodes.machine import Machine
from gameday_rehearsal.nodes.nccl import all_reduce
from gameday_rehearsal.nodes.programs.base import Options, Printed, Refused

_FAILED, _NOT_FOUND = 1, 127
_TAKES_S = 0.2
"""Seconds; the real one needs some, most of them for its start."""
_COLUMNS = """#
#                                                              out-of-place                       in-place          
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)       
"""  # noqa: W291 - as nccl-tests prints it
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


async def env(args: list[str], machine: Machine) -> Printed:
    """Run `env NAME=VALUE … PROGRAM …`; only all_reduce_perf reads its environment."""
    count = next((number for number, word in enumerate(args) if "=" not in word), len(args))
    environment = dict(word.split("=", 1) for word in args[:count])
    match args[count:]:
        case ["all_reduce_perf", *options]:
            return await _all_reduce_perf(options, machine, environment)
        case [program, *_]:
            return Printed(stderr=f"env: '{program[:64]}': No such file or directory\n", exit_status=_NOT_FOUND)
    return Printed(stdout="".join(f"{name}={value}\n" for name, value in environment.items()))


async def _all_reduce_perf(args: list[str], machine: Machine, environment: dict[str, str]) -> Printed:
    options = _parsed(args)
    gpus = _visible(machine, environment)
    if options.gpus > len(gpus):
        said = "common.cu:1037 'invalid device ordinal'\n"
        raise Refused(Printed(stderr=f"node: Test CUDA failure {said}", exit_status=2))
    gpus = gpus[: options.gpus]
    reduced = all_reduce(machine, gpus, environment)
    if reduced.error:
        said = f"{machine.name}:4711:4711 [0] NCCL WARN {reduced.error}\n{machine.name}: Test NCCL failure\n"
        return Printed(stdout=_head(options, machine, gpus), stderr=said, exit_status=_FAILED)
    await asyncio.sleep(_TAKES_S)
    size = options.most
    algorithm = reduced.gbs * len(gpus) / (2 * (len(gpus) - 1)) if reduced.gbs else 0.0
    micros = size / algorithm / 1e3 if algorithm else 1e3
    half = f"{micros:8.1f}  {algorithm:6.2f}  {reduced.gbs:6.2f}      0"
    row = f"{size:>12}  {size // 4:>12}     float     sum      -1  {half}  {half}\n"
    tail = f"# Out of bounds values : 0 OK\n# Avg bus bandwidth    : {reduced.gbs:g} \n#\n"
    return Printed(stdout=_head(options, machine, gpus) + _COLUMNS + row + tail)


def _head(options: argparse.Namespace, machine: Machine, gpus: list[int]) -> str:
    where = f"Group  0 Pid   4711 on {machine.name} device"
    ranks = [
        f"#  Rank {rank:2} {where} {rank:2} [0x{machine.gpus[gpu].pci[5:7]}] {MODEL}" for rank, gpu in enumerate(gpus)
    ]
    first = (
        f"# nThread 1 nGpus {options.gpus} minBytes {options.least} maxBytes {options.most} step: 1048576(bytes) "
        f"warmup iters: {options.warmups} iters: {options.iterations} agg iters: 1 validation: 1 graph: 0\n#\n"
    )
    return first + "# Using devices\n" + "\n".join(ranks) + "\n"


def _visible(machine: Machine, environment: dict[str, str]) -> list[int]:
    """Return the GPUs of CUDA_VISIBLE_DEVICES, by UUID or index, up to the first unknown; by default all."""
    known = {name: gpu.index for gpu in machine.gpus for name in (gpu.uuid, str(gpu.index))}
    answering = [gpu for gpu in machine.known_gpus() if machine.gpu_serves(gpu)]
    wanted = environment.get("CUDA_VISIBLE_DEVICES")
    if wanted is None:
        return answering
    found: list[int] = []
    for name in wanted.split(","):
        if known.get(name) not in answering:
            break
        found.append(known[name])
    return found


def _parsed(args: list[str]) -> argparse.Namespace:
    parser = Options("all_reduce_perf", _FAILED)
    parser.add_argument("-b", dest="least", type=_size, default=32 << 20)
    parser.add_argument("-e", dest="most", type=_size, default=32 << 20)
    parser.add_argument("-g", dest="gpus", type=int, default=1)
    parser.add_argument("-w", dest="warmups", type=int, default=5)
    parser.add_argument("-n", dest="iterations", type=int, default=20)
    return parser.parse_args(args)


def _size(text: str) -> int:
    """Return the bytes that a size such as `1G` means."""
    try:
        return int(text.rstrip("KMG")) * _UNITS.get(text[-1:], 1)
    except ValueError:
        raise HostError(f"all_reduce_perf: {text[:20]!r} is not a size") from None
