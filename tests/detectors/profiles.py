"""A small valid profile and plan as text, and how to load changed ones from a folder."""

from __future__ import annotations

from pathlib import Path

from gameday.detectors.load import read_detector
from gameday.detectors.models import DetectorProfile
from gameday.detectors.resolve import load_complete_plan
from gameday.errors import DocumentError, DocumentProblem
from gameday.plan.load import LoadedPlan

PROFILE = """\
apiVersion: gameday/v1
kind: DetectorProfile
name: ours
title: Our own detector
configuration: as deployed
reads: [kernel log]
quiet_for: 9s
source: our runbook
rules:
  - faults: [xid]
    when: {xid: [79]}
    taints: [{key: ours/gpu, value: bad, within: 20s, typically: 1s}]
    conditions: [{type: OursGPU, status: True, reason: "Xid{xid}", within: 20s}]
    labels: [{key: ours/state, value: broken, within: 20s}]
    events: [{reason: "OursXid{xid}", within: 20s}]
    ends_with: [gpu-reset, reboot]
    note: asks for a reboot
    source: our runbook, 1
  - faults: [xid]
    when: {xid: [13]}
    source: our runbook, 2
  - faults: [power_cap]
    cannot_see: it does not look at power
    source: our runbook, 3
"""

PLAN = """\
apiVersion: gameday/v1
name: ours
title: A plan
hypothesis: Somebody notices.
detector: ours.yaml
fault: {type: xid, xid: 79}
expect: {}
"""


def profile_problems(tmp_path: Path, old: str, new: str) -> tuple[DocumentProblem, ...]:
    """What is wrong with PROFILE after one replacement; fails when nothing is."""
    try:
        profile(tmp_path, old, new)
    except DocumentError as error:
        return error.problems
    raise AssertionError("this was accepted")


def profile(tmp_path: Path, old: str = "", new: str = "") -> DetectorProfile:
    return read_detector(written(tmp_path / "ours.yaml", PROFILE, old, new))


def completed(tmp_path: Path, old: str = "", new: str = "") -> LoadedPlan:
    """PLAN after one replacement, completed by PROFILE beside it."""
    profile(tmp_path)
    return load_complete_plan(written(tmp_path / "plan.yaml", PLAN, old, new))


def refused(tmp_path: Path, old: str, new: str) -> str:
    """Why PLAN after one replacement cannot be completed; fails where it can."""
    try:
        completed(tmp_path, old, new)
    except DocumentError as error:
        return str(error)
    raise AssertionError("this was accepted")


def written(path: Path, text: str, old: str, new: str) -> Path:
    assert text.count(old) == 1 or not old, old
    path.write_text(text.replace(old, new) if old else text)
    return path
