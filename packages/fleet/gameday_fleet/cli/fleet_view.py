"""Show a fleet run live: a line for each node that is measured or left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from gameday.cli.progress import how_far
from gameday.history.background import BackgroundView
from gameday.text import printable
from gameday_fleet.record import FleetRecord, NodeLeftOut, ProbedGpu, load_probes

_LOOKS_EVERY_S = 0.5


class FleetView(BackgroundView):
    """Follows the figures of a run's folder."""

    def __init__(self, folder: Path, console: Console) -> None:
        """Follow the folder, which may not exist yet."""
        super().__init__()
        self._folder = folder
        self._console = console
        self._shown = 0
        self._began = time.monotonic()
        self._nodes: set[str] = set()
        self._of_nodes = 0
        """Zero until the run's record exists."""

    def follow(self) -> None:
        for _ in self.looks(_LOOKS_EVERY_S):
            self._look()

    def _look(self) -> None:
        with suppress(OSError):  # the page says so
            probes = load_probes(self._folder, self._shown)
            self._shown = probes.end
            by_node: dict[str, list[ProbedGpu]] = {}
            for gpu in probes.gpus:
                by_node.setdefault(gpu.node, []).append(gpu)
            for node, gpus in by_node.items():
                self._say(node, _measured(gpus))
            for one in probes.left_out:
                if one.gpus:
                    self._say(one.node, _left_out(one))

    def _say(self, node: str, what: str) -> None:
        if not self._of_nodes:
            with suppress(OSError, ValueError):
                self._of_nodes = FleetRecord.load(self._folder).nodes
        self._nodes.add(node)
        done, passed_s = len(self._nodes), time.monotonic() - self._began
        far = how_far(done, self._of_nodes, passed_s / done * (self._of_nodes - done)) if self._of_nodes else ""
        line = f"{printable(node):<24} {printable(what)}  {far}".rstrip()
        self._console.print(line, soft_wrap=True, highlight=False, markup=False)


def _measured(gpus: Sequence[ProbedGpu]) -> str:
    rates = [gpu.gemm_tflops for gpu in gpus if gpu.gemm_tflops is not None]
    said = f"{len(gpus)} GPU{'' if len(gpus) == 1 else 's'} measured"
    return f"{said}, FP16 GEMM {min(rates):.4g} to {max(rates):.4g} TFLOP/s" if rates else said


def _left_out(one: NodeLeftOut) -> str:
    return f"{one.gpus} GPU{'' if one.gpus == 1 else 's'} not measured: {one.why}"
