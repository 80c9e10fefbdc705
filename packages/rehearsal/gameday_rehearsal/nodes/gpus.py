"""The GPUs of all nodes as arrays of shape (nodes, gpus): hardware state, and its changes with load and time.

Nothing runs in the background: each reader calls `advance` first, which steps the arrays from the last reading to
now. 8,000 GPUs cost about a millisecond a reading.

Figures are an H100 SXM's: 700 W limit and 1980 MHz boost (data sheet), 18 NVLinks, PCIe 5 x16, 81559 MiB; rates are
from docs/sources.md, H100 figures (794.5 TFLOP/s best-shape BF16, 2903 GB/s copy). Power, heat and clocks are fitted to
a recording of an H200, which has the same die, limit and clocks (docs/sources.md, A recorded GPU);
tests/nodes/test_recorded.py replays it. A load of 1 is our burn; work that draws less at the same clock is a lower one.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from gameday.host import clock_reasons
from gameday_rehearsal.nodes.identity import seeded

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Cell = tuple[int, int]  # (node, gpu)

IDLE_W = 81.0  # recorded, without a CUDA context
CONTEXT_W = 126.0  # recorded, with one that does nothing; the clock then is the highest
LOADED_W = 692.0  # recorded: what the driver makes of a limit of 700 W
POWER_LIMIT_W = 700.0
POWER_LIMIT_MIN_W = 200.0
SM_CLOCK_MAX_MHZ = 1980.0
SM_CLOCK_IDLE_MHZ = 345.0
SM_CLOCK_MIN_MHZ = 210.0
MEMORY_CLOCK_MHZ = 2619.0
FB_TOTAL_MIB = 81559
FB_RESERVED_MIB = 551
NVLINKS = 18
NVLINK_MBPS = 26_562
NVLINKS_GBS = NVLINKS * NVLINK_MBPS / 1000
PCIE_GENERATION = 5
PCIE_WIDTH = 16
GEMM_TFLOPS = 740.0  # a healthy GPU's on common shapes in a burst, 93 % of the best-shape ceiling
COPY_GBS = 2900.0
NEAR_GBS = 54.8  # pinned host memory to the GPU, PCIe 5 x16, measured on an H100 node (docs/sources.md, H100 figures)
FAR_SHARE = 0.62  # share of it from the other socket: a figure of this model's, boards differ
LOAD_TAKES_MIB = 3600  # CuPy's GEMM and copy with their temporaries (gameday.host.load), with the context

_REGULATED = LOADED_W / POWER_LIMIT_W
_HEADROOM = 1.04  # recorded: 716 to 730 W until the mean of a second has come to the limit, then 692
_FULL_MHZ = 1425.0  # recorded clock at 692 W of a load of 1: 1410 to 1440
_TENSOR_MHZ = 1665.0  # recorded: no product on tensor cores ran faster for long, nor at 502 W (SwPowerCap is set, too)
_TENSOR_LOAD = 0.35  # load from which that holds; recorded: 0.46 at 1655 MHz, 0.24 at 1980 MHz
_POWER_EXPONENT = 2.4  # of power with the clock, between linear and cubic: a figure of this model's
_TRAINING_LOAD = 0.29  # recorded: training used 80 % of the time and drew 415 W at 1980 MHz
_MEASURED_LOAD = 0.65  # recorded: QA's measurement, which checks each product, stays at 1665 MHz

_INLET_C = 34.2  # recorded
_DIE_DEGREES_PER_W = 0.0275  # recorded, die above its heat sink
_SINK_DEGREES_PER_W = 0.0069  # recorded, heat sink above the air; together 0.0344
_DIE_TAU_S = 0.15  # recorded
_SINK_TAU_S = 2.5  # recorded; longer by as much as the air is blocked, because the heat sink is the same
_MEMORY_DEGREES = 5.3  # recorded, memory above the heat sink with a cold die
_MEMORY_BESIDE_DIE = 0.4  # recorded: share of the die's degrees above the heat sink that the memory takes on at once
_MEMORY_TAU_S = 5.0  # recorded
_SHARED_DEGREES_PER_W = 0.005  # of the other GPUs' mean power: a figure of this model's
BLOCKED_AIR = 10.0  # thermal resistance of a heat sink with which one GPU alone at full load would reach 100 °C
MAX_OPERATING_C = 85.0  # above it the driver lowers the clocks, as far as holds the GPU a degree above
HARDWARE_SLOWDOWN_C = 92.0
_CHECKPOINT_EVERY_S = 97.0
_CHECKPOINT_LASTS_S = 4.0
_MEAN_OVER_S = 1.0  # recorded: NVML's watts
_SHORTEST_STEP_S = 1.25e-6
"""Seconds for each GPU: 50 ms for 40,000 GPUs, where a step takes 10 ms of processor time; 0.1 ms for 64."""
_LONGEST_STEP_S = 1.0
_MOST_STEPS = 64


SPEED_SIGMA = 0.0148
"""Standard deviation of healthy GPUs' compute rates, a share of the median. GPUs of one SKU in one cluster differed by
8 % on average over five centres (Sinha et al., "Not All GPUs Are Created Equal", SC22, arXiv 2208.11035). We take
that as the distance between the whiskers of a box plot, which is 5.4 standard deviations for a normal distribution.
"""
_MEMORY_SIGMA = 0.004
"""The same for copies within the memory, which has a fixed clock: a figure of this model's."""
_MOST_SIGMAS = 2.7
"""Ends of the whiskers: a die beyond them is an outlier, and this model makes outliers on purpose."""


def _dies(names: list[str], gpus: int, of: str) -> Floats:
    """Return how each GPU's die differs, in standard deviations. It follows from the name, so it is always the same."""

    def die(name: str, gpu: int) -> float:
        return min(_MOST_SIGMAS, max(-_MOST_SIGMAS, seeded(name, of, gpu).gauss(0, 1)))

    return np.array([[die(name, gpu) for gpu in range(gpus)] for name in names])


class GpuFleet:
    """The GPUs of all nodes. Every array is (nodes, gpus); faults and tools set state, `advance` the derived arrays."""

    def __init__(self, names: list[str], gpus: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.shape = shape = (len(names), gpus)
        self.clock, self._at = clock, clock()
        self._phase = np.array([seeded(name, "phase").uniform(0, 1000) for name in names])[:, None]
        self._silicon = np.array([[seeded(name, "silicon", g).uniform(-1, 1) for g in range(gpus)] for name in names])
        self._dies = {part: _dies(names, gpus, part) for part in ("speed", "memory")}
        # Hardware state.
        self.lost, self.removed = np.zeros(shape, bool), np.zeros(shape, bool)
        self.xid: Ints = np.zeros(shape, np.int64)
        self.sbe_volatile: Ints = np.zeros(shape, np.int64)
        self.dbe_volatile: Ints = np.zeros(shape, np.int64)
        self.sbe_aggregate: Ints = np.zeros(shape, np.int64)
        self.dbe_aggregate: Ints = np.zeros(shape, np.int64)
        self.remapped_correctable: Ints = np.zeros(shape, np.int64)
        self.remapped_uncorrectable: Ints = np.zeros(shape, np.int64)
        self.remap_pending, self.remap_failure = np.zeros(shape, bool), np.zeros(shape, bool)
        self.nvlinks, self.nvlink_mbps = np.full(shape, NVLINKS), np.full(shape, NVLINK_MBPS)  # each link's rate
        self.nvlink_crc_flit: Ints = np.zeros(shape, np.int64)
        self.nvlink_crc_data: Ints = np.zeros(shape, np.int64)
        self.nvlink_replay: Ints = np.zeros(shape, np.int64)
        self.nvlink_recovery: Ints = np.zeros(shape, np.int64)
        self.pcie_generation: Ints = np.full(shape, PCIE_GENERATION)
        self.pcie_width: Ints = np.full(shape, PCIE_WIDTH)
        self.pcie_replays: Ints = np.zeros(shape, np.int64)
        self.wrong_results: Ints = np.zeros(shape, np.int64)
        self.ecc: Flags = np.ones(shape, bool)
        self.thermal_resistance: Floats = np.ones(shape)  # of the heat sink; 1: clean air flow; above: a blocked one
        # Shares of the memory's bandwidth, and of what the PCIe link's width and generation would give;
        # and of the rate that the clock would give: below 1 on a GPU that is just slow.
        self.memory_share, self.link_share, self.compute_share = np.ones(shape), np.ones(shape), np.ones(shape)
        self.bad_word_at: Ints = np.full(shape, -1)  # offset in the free memory of a word that loses bits
        self.wrong_every: Ints = np.zeros(shape, np.int64)  # one wrong bit in so many checked products; 0: none
        self.wrong_above_c: Floats = np.full(shape, np.inf)  # temperature above which each product has a wrong bit
        # Settings.
        self.power_limit: Floats = np.full(shape, POWER_LIMIT_W)
        self.clock_floor: Floats = np.zeros(shape)
        self.clock_ceiling: Floats = np.full(shape, SM_CLOCK_MAX_MHZ)
        self.persistence: Flags = np.ones(shape, bool)
        self.ecc_pending: Flags = np.ones(shape, bool)
        # Demand.
        self.pod_load: Floats = np.zeros(shape)  # 0..1, by pods
        self.burst_load: Floats = np.zeros(shape)  # 0..1, by a measurement on the host
        self.work_load: Floats = np.zeros(shape)  # 0..1, by work that an agent is doing
        self.held_mib: Ints = np.zeros(shape, np.int64)  # memory that work on the host has taken
        self.powered: Flags = np.ones(len(names), bool)
        # Derived.
        self.utilization: Floats = np.zeros(shape)
        self.power: Floats = np.full(shape, IDLE_W)
        self.sink: Floats = _INLET_C + IDLE_W * (_SINK_DEGREES_PER_W + _SHARED_DEGREES_PER_W) + self._silicon
        self.temperature: Floats = self.sink + IDLE_W * _DIE_DEGREES_PER_W
        self._memory: Floats = self.sink + _MEMORY_DEGREES
        self.sm_clock: Floats = np.full(shape, SM_CLOCK_IDLE_MHZ)
        self.reasons: Ints = np.full(shape, clock_reasons.IDLE)
        self._past = deque(
            [(self._at - _MEAN_OVER_S, -self.power * _MEAN_OVER_S), (self._at, np.zeros(shape))]
        )  # joules
        self.energy_mj, self.worked_s = np.zeros(shape), np.zeros(shape)  # the work of so many seconds at full pace
        self.power_violation_ns, self.thermal_violation_ns = np.zeros(shape), np.zeros(shape)
        self.nvlink_bytes: Floats = np.zeros(shape)

    @property
    def memory_used_mib(self) -> Ints:
        """Training fills the memory independently of its load; an idle driver keeps 4 MiB."""
        by_pods = np.where(self.pod_load > 0, (FB_TOTAL_MIB * (0.78 + 0.03 * self._silicon)).astype(np.int64), 4)
        return np.minimum(by_pods + self.held_mib, FB_TOTAL_MIB - FB_RESERVED_MIB)

    def memory_free_mib(self, cell: Cell) -> int:
        return int(FB_TOTAL_MIB - FB_RESERVED_MIB - self.memory_used_mib[cell])

    @property
    def memory_temperature(self) -> Floats:
        """Degrees of the memory in products. Copies heat it more, up to 8 °C recorded, which is not modelled."""
        return self._memory + _MEMORY_BESIDE_DIE * (self.temperature - self.sink)

    def advance(self) -> None:
        """Step every GPU from the last step to now, in steps of at most 1 s (fewer, longer ones after a long rest).

        A large fleet is not stepped within a short time, so that the start of ten thousand pods is not as many steps.
        """
        now = self.clock()
        elapsed = now - self._at
        if elapsed <= self.power.size * _SHORTEST_STEP_S:
            return
        steps = min(_MOST_STEPS, int(elapsed / _LONGEST_STEP_S) + 1)
        for _ in range(steps):
            self._at += elapsed / steps
            self._step(elapsed / steps)
        self._at = now

    def set_pod_load(self, cell: Cell, load: float) -> None:
        self.advance()
        self.pod_load[cell] = min(1.0, max(0.0, load))

    def set_burst_load(self, cell: Cell, load: float) -> None:
        self.advance()
        self.burst_load[cell] = load

    def set_work_load(self, cell: Cell, load: float) -> None:
        self.advance()
        self.work_load[cell] = load

    def reset(self, cell: Cell) -> None:
        """Clear what a secondary bus reset clears; the last Xid, aggregate ECC and completed remappings stay."""
        self.advance()
        self.remapped_uncorrectable[cell] += int(self.remap_pending[cell])
        self.remap_pending[cell] = False
        for counter in (self.sbe_volatile, self.dbe_volatile, self.nvlink_crc_flit, self.nvlink_crc_data):
            counter[cell] = 0
        for counter in (self.nvlink_replay, self.nvlink_recovery, self.pcie_replays):
            counter[cell] = 0
        self.nvlinks[cell], self.nvlink_mbps[cell] = NVLINKS, NVLINK_MBPS
        self.clock_floor[cell], self.clock_ceiling[cell] = 0.0, SM_CLOCK_MAX_MHZ
        self.power_limit[cell] = POWER_LIMIT_W
        self.ecc[cell] = self.ecc_pending[cell]

    def boot(self, node: int) -> None:
        """Reboot: lost and removed GPUs are found again, and the driver's counters begin again."""
        self.advance()
        for gpu in range(self.shape[1]):
            self.reset((node, gpu))
        for flags in (self.lost, self.removed):
            flags[node] = False
        self.held_mib[node] = 0
        for counter in (self.xid, self.energy_mj, self.power_violation_ns, self.thermal_violation_ns):
            counter[node] = 0
        self.nvlink_bytes[node] = 0
        self.persistence[node] = True
        self.pcie_generation[node], self.pcie_width[node] = PCIE_GENERATION, PCIE_WIDTH

    def gemm_tflops(self, cell: Cell, others: float | None = None) -> float:
        """Return the dense BF16 rate at the present clock; `others` (None: pods and work) take their share of it."""
        share = self._share(cell, others)
        quality = 1.0 + SPEED_SIGMA * float(self._dies["speed"][cell])
        rate = GEMM_TFLOPS * quality * float(self.compute_share[cell])
        return float(rate * self.sm_clock[cell] / _TENSOR_MHZ * share)

    def worked(self, node: int, gpus: Sequence[int]) -> tuple[float, list[float]]:
        """Return the model's time, and the seconds at full pace that a node's GPUs have worked by then."""
        self.advance()
        return self._at, [float(self.worked_s[node, gpu]) for gpu in gpus]

    def copy_gbs(self, cell: Cell) -> float:
        quality = 1.0 + _MEMORY_SIGMA * float(self._dies["memory"][cell])
        return float(COPY_GBS * quality * self._share(cell) * self.memory_share[cell])

    def link_gbs(self, cell: Cell) -> float:
        """Return the rate of copies from the near host memory; half of the lanes, or one generation lower, halve it."""
        lanes = float(self.pcie_width[cell]) / PCIE_WIDTH
        return float(NEAR_GBS * lanes * 2.0 ** (self.pcie_generation[cell] - PCIE_GENERATION) * self.link_share[cell])

    def nvlinks_gbs(self, cell: Cell) -> float:
        """Return the rate of the active NVLinks together, in one direction."""
        return float(self.nvlinks[cell] * self.nvlink_mbps[cell] / 1000)

    def _share(self, cell: Cell, others: float | None = None) -> float:
        beside = max(float(self.pod_load[cell]), float(self.work_load[cell])) if others is None else others
        return 1.0 - 0.5 * beside

    def _step(self, seconds: float) -> None:
        alive = self.powered[:, None] & ~self.lost & ~self.removed
        training = self._training() * alive
        busy = np.maximum(np.maximum(training, self.burst_load), self.work_load) * alive
        self.utilization = np.round(100 * busy)
        load = (
            np.maximum(np.maximum(_TRAINING_LOAD * training, _MEASURED_LOAD * self.burst_load), self.work_load) * alive
        )
        context = alive & ((load > 0) | (self.pod_load > 0) | (self.held_mib > 0))
        dynamic = (LOADED_W - CONTEXT_W) * load * (1 + 0.02 * self._silicon)
        usual, self.sm_clock, self.reasons = self._clocks(load, dynamic, context)
        drawn = np.where(context, CONTEXT_W + dynamic * (self.sm_clock / _FULL_MHZ) ** _POWER_EXPONENT, IDLE_W) * alive
        self._past.append((self._at, self._past[-1][1] + drawn * seconds))
        self.power = self._mean_power() * alive
        self._warm(drawn, seconds)
        # A lost GPU holds up nobody here: the container's end decides what happens to its work.
        pace = np.where(load > 0, np.minimum(self.sm_clock / usual, 1.0) * self.compute_share, 1.0)
        self.worked_s += pace * seconds
        self.energy_mj += drawn * seconds * 1000
        self.power_violation_ns += np.where(self.reasons & clock_reasons.POWER_CAP, seconds * 1e9, 0.0)
        self.thermal_violation_ns += np.where(self.reasons & clock_reasons.THERMAL_SLOWDOWN, seconds * 1e9, 0.0)
        self.nvlink_bytes += busy * 180e9 * seconds * (self.nvlinks * self.nvlink_mbps / 1000 / NVLINKS_GBS)

    def _mean_power(self) -> Floats:
        """Return the mean of the last second, and forget what lies before it."""
        begin = self._at - _MEAN_OVER_S
        while self._past[1][0] <= begin:
            self._past.popleft()
        (before, first), (after, second) = self._past[0], self._past[1]
        then = first + (second - first) * (begin - before) / (after - before)
        return (self._past[-1][1] - then) / _MEAN_OVER_S

    def _warm(self, drawn: Floats, seconds: float) -> None:
        """Move heat from the die into its heat sink, and from there into the air that the node's GPUs share."""
        others = (drawn.sum(axis=1, keepdims=True) - drawn) / max(1, self.shape[1] - 1)
        air = _INLET_C + others * _SHARED_DEGREES_PER_W + self._silicon
        sink = air + drawn * _SINK_DEGREES_PER_W * self.thermal_resistance
        self.sink += (sink - self.sink) * (1 - np.exp(-seconds / (_SINK_TAU_S * self.thermal_resistance)))
        self.temperature += (self.sink + drawn * _DIE_DEGREES_PER_W - self.temperature) * (
            1 - np.exp(-seconds / _DIE_TAU_S)
        )
        self._memory += (self.sink + _MEMORY_DEGREES - self._memory) * (1 - np.exp(-seconds / _MEMORY_TAU_S))

    def _training(self) -> Floats:
        """Return the pods' load now: a slow wobble of a few percent, and a pause of the node's GPUs at checkpoints."""
        at = self._at + self._phase
        wobble = 0.6 * np.sin(at * 0.83 + 7 * self._silicon) + 0.4 * np.sin(at * 2.17 + 3 * self._silicon)
        checkpoint = (at % _CHECKPOINT_EVERY_S) < _CHECKPOINT_LASTS_S
        busy = np.clip(self.pod_load * (1 + 0.03 * wobble), 0, 1)
        return np.where(checkpoint, 0.05 * self.pod_load, busy)

    def _clocks(self, load: Floats, dynamic: Floats, context: Flags) -> tuple[Floats, Floats, Ints]:
        """Return the SM clock in MHz that the load has by itself, the one that it gets, and NVML's reasons for that.

        `dynamic`: watts that the load would add at the clock of a load of 1.
        """
        free = np.where(load >= _TENSOR_LOAD, _TENSOR_MHZ, SM_CLOCK_MAX_MHZ)
        usual = np.minimum(free, _clock_at(LOADED_W, dynamic))
        limit = self.power_limit * _REGULATED
        capped = _clock_at(limit * np.where(self.power < 0.97 * limit, _HEADROOM, 1.0), dynamic)
        clock = np.where(context, np.minimum(free, capped), SM_CLOCK_IDLE_MHZ)
        reasons: Ints = np.where(context, 0, clock_reasons.IDLE).astype(np.int64)
        by_power = (load > 0) & (clock < SM_CLOCK_MAX_MHZ) & (clock <= self.clock_ceiling)
        reasons |= np.where(by_power, clock_reasons.POWER_CAP, 0)
        reasons |= np.where(clock > self.clock_ceiling, clock_reasons.APPLICATION_CLOCKS, 0)
        clock = np.clip(clock, self.clock_floor, self.clock_ceiling)
        hot = (self.temperature >= MAX_OPERATING_C) & (load > 0)
        cooled = _clock_at((MAX_OPERATING_C + 1 - self.sink) / _DIE_DEGREES_PER_W, dynamic)
        clock = np.where(load > 0, np.minimum(clock, cooled), clock)
        reasons |= np.where(hot, clock_reasons.SW_THERMAL, 0)
        too_hot = (self.temperature >= HARDWARE_SLOWDOWN_C) & (load > 0)
        clock = np.where(too_hot, np.minimum(clock, SM_CLOCK_MAX_MHZ / 2), clock)
        reasons |= np.where(too_hot, clock_reasons.HW_THERMAL | clock_reasons.HW_SLOWDOWN, 0)
        return usual, np.clip(np.round(clock / 15) * 15, SM_CLOCK_MIN_MHZ, SM_CLOCK_MAX_MHZ), reasons


def _clock_at(watts: Floats | float, dynamic: Floats) -> Floats:
    """Return the clock in MHz at which a GPU draws so many watts."""
    share = np.maximum(watts - CONTEXT_W, 1.0) / np.maximum(dynamic, 1.0)
    return np.asarray(_FULL_MHZ * share ** (1 / _POWER_EXPONENT))
