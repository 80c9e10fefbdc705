"""What NVIDIA says about each Xid, NVLink5 sub-code and SXid, as typed rows of the data files beside this module."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib import resources


class Action(StrEnum):
    """NVIDIA's immediate-action buckets. BLANK: the sheet says nothing."""

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


class Rule(StrEnum):
    """What this project does about a code under the catalogue policy."""

    QUARANTINE = "quarantine"
    WORKLOAD = "workload"
    """The application's own event: recorded, the node keeps working."""
    EVENT = "event"
    """Recorded only."""
    DECODE = "decode"
    """The NVLink5 sub-unit decides."""
    STATED = "stated"
    """The line itself names the recovery action (Xid 154)."""


class Remedy(StrEnum):
    """What must be seen to happen before a fault counts as gone."""

    NONE = "none"
    GPU_RESET = "gpu-reset"
    REBOOT = "reboot"
    CONTACT_SUPPORT = "contact-support"


class FatalClass(StrEnum):
    """How the Fabric Manager guide classes an SXid."""

    NO = "no"
    POTENTIAL = "potential"
    ALWAYS = "always"


@dataclass(frozen=True, slots=True)
class Xid:
    code: int
    name: str
    mnemonic: str
    architectures: tuple[str, ...]
    nature: str
    immediate: Action
    investigatory: str
    rule: Rule
    remedy: Remedy
    note: str

    @property
    def in_use(self) -> bool:
        return self.name != "Unused"


@dataclass(frozen=True, slots=True)
class NvLink5Code:
    xid: int
    unit: str
    error_status: int | None
    """None: every value."""
    action: Action
    severity: str


@dataclass(frozen=True, slots=True)
class SXid:
    code: int
    name: str
    fatal: FatalClass
    allow_listed: bool


@cache
def xids() -> dict[int, Xid]:
    """Every Xid the catalogue knows, by code."""
    return {
        int(row["code"]): Xid(
            code=int(row["code"]),
            name=row["name"],
            mnemonic=row["mnemonic"],
            architectures=tuple(row["architectures"].split()),
            nature=row["nature"],
            immediate=Action(row["immediate"]),
            investigatory=row["investigatory"],
            rule=Rule(row["decision"]),
            remedy=Remedy(row["remedy"] or "none"),
            note=row["note"],
        )
        for row in _rows("xids.csv")
    }


@cache
def sxids() -> dict[int, SXid]:
    """Every SXid of the Fabric Manager guide, by code."""
    return {
        int(row["code"]): SXid(
            int(row["code"]), row["name"], FatalClass(row["fatal"]), allow_listed=row["allow_listed"] == "yes"
        )
        for row in _rows("sxids.csv")
    }


@cache
def nvlink5_codes() -> tuple[NvLink5Code, ...]:
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
    """The actions the sheet gives this sub-unit and errorStatus; several where its link-down reason would decide.

    A line names the innermost unit, the sheet also its parent (`TLW_RX/TLW_RX_PIPE0`).
    """
    return frozenset(
        code.action
        for code in nvlink5_codes()
        if code.xid == xid and unit in code.unit.split("/") and code.error_status in (None, error_status)
    )


def _rows(name: str) -> Iterator[dict[str, str]]:
    text = (resources.files(__package__) / name).read_text(encoding="utf-8")
    yield from csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
