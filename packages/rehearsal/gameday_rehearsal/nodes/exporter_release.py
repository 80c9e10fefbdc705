"""dcgm-exporter's releases, by their differences in names and form (docs/sources.md, dcgm-exporter)."""

from __future__ import annotations

from enum import StrEnum

_FROM_4_0_0 = frozenset(
    (
        "DCGM_EXP_GPU_HEALTH_STATUS",
        "DCGM_FI_DEV_CLOCKS_EVENT_REASONS",
        "DCGM_FI_DEV_FABRIC_MANAGER_STATUS",
        "DCGM_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
        "DCGM_FI_DEV_NVLINK_ERROR_DL_CRC",
        "DCGM_FI_DEV_NVLINK_ERROR_DL_RECOVERY",
        "DCGM_FI_DEV_NVLINK_ERROR_DL_REPLAY",
    )
)
"""Names of our counters file that 3.3.5 lacks and 4.0.0 has: go-dcgm at 3385e27 and 850266c, as their go.mod say."""
_NO_NAME_IN_4_4_2 = frozenset(
    (
        "DCGM_FR_FABRIC_PROBE_STATE",
        "DCGM_FR_FALLEN_OFF_BUS",
        "DCGM_FR_GPU_RECOVERY_DRAIN_P2P",
        "DCGM_FR_GPU_RECOVERY_DRAIN_RESET",
        "DCGM_FR_GPU_RECOVERY_REBOOT",
        "DCGM_FR_GPU_RECOVERY_RESET",
    )
)
_NO_NAME_YET = {
    "DCGM_FR_CONTAINED_ERROR": "DCGM_FR_ERROR_SENTINEL",
    "DCGM_FR_UNCORRECTABLE_ROW_REMAP_LIMIT": "DCGM_FR_UNKNOWN(132)",
}
"""Errors of DCGM 4.6 that no exporter has a name for; the first has the number that ended the list of DCGM 4.5.3."""


class ExporterRelease(StrEnum):
    """A release that stands for all with the same form: those after the previous one here, up to it."""

    UNCODED = "3.3.5"
    """The last Xid is the value of one series, without a label for its code."""
    CODED = "4.4.2"
    """Each code of an Xid is a series of its own, with a constant value; a GPU without an Xid has one of code 0."""
    FROM_FIRST_XID = "4.5.3"
    """The same as 4.4.2, but a GPU without an Xid has no such series."""
    LOWER_CASE = "newer"
    """The same as 4.5.3, except that the node is in the label `hostname`."""

    @property
    def codes_xids(self) -> bool:
        """Return True if a series of an Xid has the labels `err_code` and `err_msg`."""
        return self is not ExporterRelease.UNCODED

    @property
    def shows_no_xid(self) -> bool:
        """Return True if a GPU that has had no Xid has a series, with the value 0."""
        return self in (ExporterRelease.UNCODED, ExporterRelease.CODED)

    @property
    def node_label(self) -> str:
        """The label that holds the node's name."""
        return "hostname" if self is ExporterRelease.LOWER_CASE else "Hostname"

    @property
    def version(self) -> tuple[int, ...]:
        """The version number for comparisons; `newer` comes after every number."""
        return (99,) if self is ExporterRelease.LOWER_CASE else tuple(map(int, self.split(".")))

    @property
    def lacks(self) -> frozenset[str]:
        """Lines of the counters file, for 4.0.0 and newer, with which this release would not start."""
        return _FROM_4_0_0 if self is ExporterRelease.UNCODED else frozenset()

    @property
    def shows_whole_gpus_health(self) -> bool:
        """Return True if DCGM's verdict on a GPU as a whole is a health watch, ALL; other releases drop it.

        DCGM gives such a verdict for eight Xids, among them 79 and 95 (gpu_health_collector.go, from 4.5.3-4.8.2 on).
        """
        return self in (ExporterRelease.FROM_FIRST_XID, ExporterRelease.LOWER_CASE)

    def error_name(self, code: str) -> str:
        """Return the label `health_error_code` for an error of DCGM; older releases leave it empty if it is unknown."""
        if not self.shows_whole_gpus_health:
            return "" if code in _NO_NAME_IN_4_4_2 or code in _NO_NAME_YET else code
        return _NO_NAME_YET.get(code, code)
