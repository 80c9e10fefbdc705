"""DCGM's health watches, as dcgm-exporter asks them for DCGM_EXP_GPU_HEALTH_STATUS: which GPU has which problem.

The rules and limits are those of DCGM 4.6 for a GPU before Blackwell (modules/health/DcgmHealthWatch.cpp). An Xid stays
an incident until the host engine restarts. Rules that count errors look at one minute, and take a falling counter for
a rising one. Of several incidents of one watch the exporter shows the last, so they are in DCGM's order. Only active
GPUs are looked at: a paused or a lost one passes. Not modelled: the week that DCGM looks back for retired pages, IMEX.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gameday_rehearsal.nodes.dcgm import BY_ID, DcgmCache
from gameday_rehearsal.nodes.gpus import NVLINKS, Cell

WATCHES = ("PCIE", "NVLINK", "PMU", "MCU", "MEM", "SM", "INFOROM", "THERMAL", "POWER", "DRIVER")
"""The watches that have a series for every GPU, as the exporter names them (gpu_health_collector.go)."""
WHOLE_GPU = "ALL"
WARNING, FAILURE = 10, 20
"""DCGM_HEALTH_RESULT_WARN and _FAIL (dcgm_structs.h); 0 is a pass."""
_WINDOW_S = 60.0
_SAMPLE_EVERY_S = 5.0
"""Interval of this model, so that the window has a dozen samples; DCGM's own is 10 to 30 s."""
_MOST_REMAPPED = 512  # DCGM_LIMIT_MAX_ROW_REMAP_UNCORRECTABLE
_MOST_RETIRED = 63  # DCGM_LIMIT_MAX_RETIRED_PAGES
_CRC_ERRORS_PER_S = 100.0  # DCGM_LIMIT_MAX_NVLINK_CRC_ERROR
_REPLAYS_PER_LANE = np.array([0.15, 0.3, 0.48, 0.96, 1.92, 3.84])  # a minute, by generation: GetExpectedPcieReplayRate
_CRC_FLIT, _CRC_DATA, _REPLAY, _RECOVERY = 409, 419, 429, 439
_DATA_LINK = (497, 498, 499)
_SYMBOL_BER, _EFFECTIVE_BER = 1215, 1217
_ZERO_BER = 0xFFF
_LATEST = (84, 155, 170, 174, 237, 238, 311, 390, 391, 392, 393, 395, _SYMBOL_BER, _EFFECTIVE_BER, 1507, 1523)
_COUNTED = (202, 240, 241, _CRC_FLIT, _CRC_DATA, _REPLAY, _RECOVERY)
READ = frozenset((*_LATEST, *_COUNTED, *_DATA_LINK))
"""Ids of the fields that the watches sample. The Xid comes as an event."""
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Incident:
    """A watch's verdict on a GPU: `result` is WARNING or FAILURE (0 for a pass), `code` is DCGM's name of the error."""

    result: int
    code: str


@dataclass(frozen=True)
class _Sample:
    at: float
    restarts: npt.NDArray[np.int64]
    values: dict[int, Floats]


@dataclass(frozen=True)
class _Readings:
    """The fields now and at the window's beginning, NaN if there is no value; and by code the cells that had an Xid."""

    now: dict[int, Floats]
    before: dict[int, Floats]
    xids: dict[int, set[Cell]]
    links: npt.NDArray[np.int64]
    active: npt.NDArray[np.bool_]

    def moved(self, field: int) -> Floats:
        moved: Floats = np.abs(self.now[field] - self.before[field])
        return moved

    def fabric_is_ill(self) -> npt.NDArray[np.bool_]:
        """Return True for each GPU with a problem in the fabric's mask.

        Two bits each for bandwidth, route recovery, route and access timeout, with 1 for bad; then the configuration's.
        """
        mask = np.nan_to_num(self.now[174], nan=426).astype(np.int64)
        pairs = [((mask >> shift) & 0x3) == 1 for shift in (0, 2, 4, 6)]
        ill: npt.NDArray[np.bool_] = np.logical_or.reduce([*pairs, ((mask >> 8) & 0xF) > 1])
        return ill

    def has_symbol_errors(self) -> npt.NDArray[np.bool_]:
        """Return True for each GPU with a symbol error rate, however small: they are those that stay uncorrected."""
        mantissa, exponent = self._error_rate(_SYMBOL_BER)
        some: npt.NDArray[np.bool_] = (mantissa > 0) & (exponent < 255)
        return some

    def has_effective_errors(self) -> npt.NDArray[np.bool_]:
        """Return True for each GPU with an effective bit error rate above 1e-12; a packed 0 is 0e-0 and counts, too."""
        mantissa, exponent = self._error_rate(_EFFECTIVE_BER)
        at_the_limit = ((exponent == 12) & (mantissa > 1)) | ((exponent == 13) & (mantissa > 10))
        above: npt.NDArray[np.bool_] = (exponent < 12) | at_the_limit
        return above

    def _error_rate(self, field: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        packed = np.nan_to_num(self.now[field], nan=_ZERO_BER).astype(np.int64)
        return (packed >> 8) & 0xF, packed & 0xFF

    def has_data_link_errors(self) -> npt.NDArray[np.bool_]:
        some: npt.NDArray[np.bool_] = np.logical_or.reduce([self.now[field] > 0 for field in _DATA_LINK])
        return some

    def retired(self) -> Floats:
        retired: Floats = np.nan_to_num(self.now[390]) + np.nan_to_num(self.now[391])
        return retired

    def replays_allowed(self) -> Floats:
        generation = np.nan_to_num(self.now[237], nan=1).astype(np.int64).clip(1, len(_REPLAYS_PER_LANE))
        allowed: Floats = np.ceil(_REPLAYS_PER_LANE[generation - 1] * self.now[238])
        return allowed


@dataclass(frozen=True)
class _Rule:
    watch: str
    result: int
    code: str
    where: Callable[[_Readings], npt.NDArray[np.bool_]]


def _crc(field: int) -> tuple[_Rule, _Rule]:
    limit = _CRC_ERRORS_PER_S * _WINDOW_S
    return (
        _Rule("NVLINK", WARNING, "DCGM_FR_NVLINK_ERROR_THRESHOLD", lambda r: r.moved(field) >= 1),
        _Rule("NVLINK", FAILURE, "DCGM_FR_NVLINK_CRC_ERROR_THRESHOLD", lambda r: r.moved(field) >= limit),
    )


_NVLINK_CRITICAL = "DCGM_FR_NVLINK_ERROR_CRITICAL"
_RULES_BEFORE_XIDS = (
    *_crc(_CRC_FLIT),
    *_crc(_CRC_DATA),
    _Rule("NVLINK", FAILURE, _NVLINK_CRITICAL, lambda r: r.moved(_REPLAY) >= 1),
    _Rule("NVLINK", FAILURE, _NVLINK_CRITICAL, lambda r: r.moved(_RECOVERY) >= 1),
    _Rule("NVLINK", FAILURE, "DCGM_FR_NVLINK_EFFECTIVE_BER_THRESHOLD", _Readings.has_effective_errors),
    _Rule("NVLINK", FAILURE, "DCGM_FR_NVLINK_SYMBOL_BER_THRESHOLD", _Readings.has_symbol_errors),
)
_RULES = (
    _Rule("PCIE", WARNING, "DCGM_FR_PCI_REPLAY_RATE", lambda r: r.moved(202) > r.replays_allowed()),
    _Rule("NVLINK", FAILURE, "DCGM_FR_NVLINK_DOWN", lambda r: (r.links < NVLINKS) & ~np.isnan(r.now[_REPLAY])),
    _Rule("NVLINK", FAILURE, "DCGM_FR_FIELD_VIOLATION", _Readings.fabric_is_ill),
    _Rule("NVLINK", WARNING, "DCGM_FR_FABRIC_PROBE_STATE", lambda r: r.now[170] == 2),
    _Rule("NVLINK", FAILURE, "DCGM_FR_FABRIC_PROBE_STATE", lambda r: (r.now[170] == 1) | (r.now[170] > 3)),
    _Rule("NVLINK", FAILURE, _NVLINK_CRITICAL, _Readings.has_data_link_errors),
    _Rule("MEM", FAILURE, "DCGM_FR_VOLATILE_DBE_DETECTED", lambda r: r.now[311] > 0),
    _Rule("MEM", WARNING, "DCGM_FR_PENDING_PAGE_RETIREMENTS", lambda r: r.now[392] > 0),
    _Rule("MEM", FAILURE, "DCGM_FR_RETIRED_PAGES_LIMIT", lambda r: r.retired() >= _MOST_RETIRED),
    _Rule("MEM", FAILURE, "DCGM_FR_ROW_REMAP_FAILURE", lambda r: r.now[395] > 0),
    _Rule("MEM", WARNING, "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT", lambda r: r.now[393] >= _MOST_REMAPPED),
    _Rule("MEM", FAILURE, "DCGM_FR_FAULTY_MEMORY", lambda r: r.now[1507] > 0),
    _Rule("INFOROM", WARNING, "DCGM_FR_CORRUPT_INFOROM", lambda r: r.now[84] == 0),
    _Rule("THERMAL", WARNING, "DCGM_FR_CLOCK_THROTTLE_THERMAL", lambda r: r.moved(241) > 0),
    _Rule("POWER", WARNING, "DCGM_FR_POWER_UNREADABLE", lambda r: np.isnan(r.now[155])),
    _Rule("POWER", WARNING, "DCGM_FR_CLOCK_THROTTLE_POWER", lambda r: r.moved(240) > 0),
    _Rule("DRIVER", FAILURE, "DCGM_FR_GPU_RECOVERY_RESET", lambda r: r.now[1523] == 1),
    _Rule("DRIVER", FAILURE, "DCGM_FR_GPU_RECOVERY_REBOOT", lambda r: r.now[1523] == 2),
    _Rule("DRIVER", WARNING, "DCGM_FR_GPU_RECOVERY_DRAIN_P2P", lambda r: r.now[1523] == 3),
    _Rule("DRIVER", FAILURE, "DCGM_FR_GPU_RECOVERY_DRAIN_RESET", lambda r: r.now[1523] == 4),
)
_ANY_XID = "DCGM_FR_XID_ERROR"
_XIDS: dict[str, dict[int, Incident]] = {
    WHOLE_GPU: {
        **{code: Incident(FAILURE, _ANY_XID) for code in (48, 74, 119, 120, 140)},
        79: Incident(FAILURE, "DCGM_FR_FALLEN_OFF_BUS"),
        94: Incident(WARNING, "DCGM_FR_CONTAINED_ERROR"),
        95: Incident(FAILURE, "DCGM_FR_UNCONTAINED_ERROR"),
    },
    "PCIE": {code: Incident(WARNING, _ANY_XID) for code in (38, 39, 42)},
    "NVLINK": {code: Incident(WARNING, _ANY_XID) for code in (67, 73, 121, 137)},
    "MEM": {
        **{code: Incident(WARNING, _ANY_XID) for code in (31, 32, 43)},
        63: Incident(WARNING, "DCGM_FR_PENDING_PAGE_RETIREMENTS"),
        64: Incident(FAILURE, "DCGM_FR_ROW_REMAP_FAILURE"),
    },
    "THERMAL": {
        60: Incident(WARNING, "DCGM_FR_CLOCK_THROTTLE_THERMAL"),
        **{code: Incident(WARNING, _ANY_XID) for code in (61, 62)},
    },
    "POWER": {
        **{code: Incident(WARNING, _ANY_XID) for code in (54, 56, 58, 78)},
        57: Incident(WARNING, "DCGM_FR_CLOCK_THROTTLE_POWER"),
    },
}
"""DCGM's m_devastatingXids and m_subsystemXids; 93 is only Volta's."""


class HealthWatch:
    """The health watches of all nodes' host engines."""

    def __init__(self, cache: DcgmCache) -> None:
        self._cache = cache
        self._samples: deque[_Sample] = deque()

    def check(self) -> dict[str, dict[Cell, Incident]]:
        """Return the incidents by watch and GPU. Call after the fleet's `advance`."""
        readings = self._readings()
        found: dict[str, dict[Cell, Incident]] = {watch: {} for watch in (*WATCHES, WHOLE_GPU)}
        _overlay(found, _RULES_BEFORE_XIDS, readings)
        for watch, incidents in _XIDS.items():
            for code in sorted(incidents.keys() & readings.xids.keys()):
                cells = (cell for cell in readings.xids[code] if readings.active[cell])
                found[watch] |= dict.fromkeys(cells, incidents[code])
        _overlay(found, _RULES, readings)
        return found

    def _readings(self) -> _Readings:
        cache, now = self._cache, self._cache.clock()
        while self._samples and self._samples[0].at < now - _WINDOW_S:
            self._samples.popleft()
        values = {field: self._read(field) for field in READ}
        newest = _Sample(now, cache.restarts.copy(), values)
        if not self._samples or now - self._samples[-1].at >= _SAMPLE_EVERY_S:
            self._samples.append(newest)
        oldest = self._samples[0]
        known = (oldest.restarts == cache.restarts)[:, None]
        before = {field: np.where(known, values, np.nan) for field, values in oldest.values.items()}
        return _Readings(values, before, cache.health_xids, cache.fleet.nvlinks, self._active())

    def _active(self) -> npt.NDArray[np.bool_]:
        fleet, cache = self._cache.fleet, self._cache
        answering = (cache.running & cache.collecting & fleet.powered)[:, None]
        active: npt.NDArray[np.bool_] = answering & ~fleet.lost & ~fleet.removed
        return active

    def _read(self, field: int) -> Floats:
        of = BY_ID[field]
        return np.where(self._cache.shown(of), self._cache.read(of), np.nan)


def _overlay(found: dict[str, dict[Cell, Incident]], rules: Iterable[_Rule], readings: _Readings) -> None:
    for rule in rules:
        cells = [(int(node), int(gpu)) for node, gpu in np.argwhere(rule.where(readings) & readings.active)]
        found[rule.watch] |= dict.fromkeys(cells, Incident(rule.result, rule.code))
