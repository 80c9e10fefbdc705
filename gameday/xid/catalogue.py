"""NVIDIA's statements about each Xid, NVLink5 sub-code and SXid, as typed rows of the data files in this folder."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources


class Action(StrEnum):
    """NVIDIA's immediate-action buckets. BLANK means that the sheet names none."""

    RESET_GPU = "RESET_GPU"
    RESTART_BM = "RESTART_BM"
    RESTART_VM = "RESTART_VM"
    RESTART_APP = "RESTART_APP"
    IGNORE = "IGNORE"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    CHECK_UVM = "CHECK_UVM"
    UPDATE_SWFW = "UPDATE_SWFW"
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"
    XID_154 = "XID_154"
    XID_154_EVAL = "XID_154_EVAL"
    BLANK = ""


class XidRule(StrEnum):
    """The catalogue policy's rule for a code."""

    QUARANTINE = "quarantine"
    WORKLOAD = "workload"
    """An application's error: recorded, and the node keeps working."""
    EVENT = "event"
    """Recorded only."""
    DECODE = "decode"
    """The NVLink5 sub-unit and the severity in the line decide."""
    STATED = "stated"
    """The recovery action in the line decides (Xid 154)."""


class Remedy(StrEnum):
    """The repair that must be observed before a fault counts as gone."""

    NONE = "none"
    GPU_RESET = "gpu-reset"
    REBOOT = "reboot"
    CONTACT_SUPPORT = "contact-support"


class FatalClass(StrEnum):
    """The class of an SXid in the Fabric Manager guide."""

    NO = "no"
    POTENTIAL = "potential"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Xid:
    """A row of NVIDIA's Xid catalogue. `rule`, `remedy` and `note` are this project's own."""

    code: int
    name: str
    mnemonic: str
    architectures: tuple[str, ...]
    """Architectures, such as A100 and H100; empty if the sheet marks none."""
    nature: str
    """HW, drv/HW (driver, firmware or hardware), app/SW or unused."""
    immediate: Action
    investigatory: str
    rule: XidRule
    remedy: Remedy
    note: str

    @property
    def is_used(self) -> bool:
        """Return True if the driver still uses this code; NVIDIA calls the others `Unused`."""
        return self.name != "Unused"


@dataclass(frozen=True, slots=True)
class NvLink5Code:
    """A row of NVIDIA's decode table for the NVLink5 Xids, 144 to 150."""

    xid: int
    unit: str
    error_status: int | None
    """The error status of the row; None: every value."""
    action: Action
    severity: str


@dataclass(frozen=True, slots=True)
class SXid:
    """A row of the Fabric Manager guide's table of NVSwitch errors."""

    code: int
    name: str
    fatal: FatalClass
    allow_listed: bool
    """True if it is harmless by the guide's table D.4 and Konduktor's allow-list."""
    word: str
    """The driver's word for the severity, Fatal or Non-fatal; empty if it writes none."""
    text: str
    """The driver's text after the link."""

    @property
    def has_link(self) -> bool:
        """False for an error of the whole switch."""
        return self.code >= 11_000


@cache
def xids() -> dict[int, Xid]:
    """Return every Xid of the catalogue, by code."""
    return {
        int(row["code"]): Xid(
            code=int(row["code"]),
            name=row["name"],
            mnemonic=row["mnemonic"],
            architectures=tuple(row["architectures"].split()),
            nature=row["nature"],
            immediate=Action(row["immediate"]),
            investigatory=row["investigatory"],
            rule=XidRule(row["decision"]),
            remedy=Remedy(row["remedy"] or "none"),
            note=row["note"],
        )
        for row in _rows("xids.csv")
    }


@cache
def sxids() -> dict[int, SXid]:
    """Return every SXid of the Fabric Manager guide, by code."""
    return {
        int(row["code"]): SXid(
            code=int(row["code"]),
            name=row["name"],
            fatal=FatalClass(row["fatal"]),
            allow_listed=row["allow_listed"] == "yes",
            word=row["word"],
            text=row["text"],
        )
        for row in _rows("sxids.csv")
    }


@cache
def nvlink5_codes() -> tuple[NvLink5Code, ...]:
    """Return every row of the NVLink5 decode table, in the sheet's order."""
    return tuple(
        NvLink5Code(
            int(row["xid"]),
            row["unit"],
            None if row["error_status"] == "any" else int(row["error_status"], 16),
            Action(row["action"]),
            row["severity"],
        )
        for row in _rows("nvlink5.csv")
    )


def nvlink5_actions(xid: int, unit: str, error_status: int | None) -> frozenset[Action]:
    """Return the actions that the sheet gives a sub-unit and errorStatus.

    Args:
        xid: Code of the line, 144 to 150.
        unit: The innermost unit, as the line names it; the sheet also names its parent (`TLW_RX/TLW_RX_PIPE0`).
        error_status: The line's errorStatus; None if it has none.

    Returns:
        No action if the sheet has no such row; several if only the link-down reason, which is not decoded here, decides
            between them.
    """
    return frozenset(
        code.action
        for code in nvlink5_codes()
        if code.xid == xid and unit in code.unit.split("/") and code.error_status in (None, error_status)
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    yield from csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
