"""A small valid plan as text, and a fault of its own, so that these tests do not need the real faults."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from gameday.errors import DocumentError, DocumentProblem
from gameday.plan.fault import FaultParameters
from gameday.plan.load import LoadedPlan, parse_plan

GOOD = """\
apiVersion: gameday/v1
name: a-plan
title: A plan
hypothesis: Somebody notices.
fault:
  type: xid
  xid: 79
  hold: 60s
targets:
  nodes: 1
expect:
  alerts:
    - name: GPUFellOffTheBus
      within: 15s
  taints:
    - key: trainy.konduktor.ai/faulty
      value: "true"
      within: 15s
recover:
  remediation: reboot
"""


class TestXid(FaultParameters):
    __test__ = False

    type: Literal["xid"] = "xid"
    xid: int = Field(ge=1, le=999)
    """The Xid."""


FAULTS: dict[str, type[FaultParameters]] = {"xid": TestXid}
REMEDIATIONS = ("gpu-reset", "none", "reboot")


def parse(text: str | bytes) -> LoadedPlan:
    return parse_plan(text if isinstance(text, bytes) else text.encode(), "p.yaml", FAULTS, REMEDIATIONS)


def problems(text: str | bytes) -> tuple[DocumentProblem, ...]:
    """Return the problems of a plan; fail where there are none."""
    try:
        parse(text)
    except DocumentError as error:
        return error.problems
    raise AssertionError("this was accepted")


def only(text: str | bytes) -> DocumentProblem:
    """Return the only problem of a plan; fail where there is none, or more than one."""
    found = problems(text)
    assert len(found) == 1, [str(problem) for problem in found]
    return found[0]


def changed(old: str, new: str) -> str:
    """Return GOOD with one passage replaced."""
    assert GOOD.count(old) == 1, old
    return GOOD.replace(old, new)
