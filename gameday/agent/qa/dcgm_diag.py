"""`dcgmi diag`: NVIDIA's own tests of the node's GPUs, run by DCGM's host engine.

Its JSON has two forms, that of DCGM 3 and that of DCGM 4 (docs/sources.md, DCGM diag). It comes from outside, so
length, names and texts are bounded here, and an unknown form counts as a diagnosis without a result.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from gameday.errors import HostError
from gameday.faults.dcgm import run_dcgmi
from gameday.host.base import Host, ProgramResult
from gameday.plan.qa import DIAG_LIMITS
from gameday.text import printable

_ROOTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
"""The key of the results, in DCGM 4 and in DCGM 3."""
_READS_ONLY = "deployment"
"""The category of level 1; its tests put no work on a GPU."""
_PASSED = "pass"
_FAILED = frozenset(("fail", "warn"))
_LEFT_OUT = frozenset(("skip", "not run"))
_MOST_RESULTS = 512
"""More results than 16 GPUs have in all tests. If there are more, the rest is cut off and nothing is proved."""
_NAME_CHARACTERS, _DETAIL_CHARACTERS = 40, 300
_NOT_OF_A_NAME = re.compile(r"[^a-z0-9]+")


class DiagResult(NamedTuple):
    """The result of one test, of one GPU or of the node."""

    test: str
    """Its name in lower case with dashes, e.g. `memory-bandwidth`."""
    gpu: int | None
    status: str
    """DCGM's word in lower case: pass, fail, warn, skip, not run."""
    detail: str = ""
    loads: bool = True
    """The test puts work on the GPU."""

    @property
    def ok(self) -> bool | None:
        """True for a pass, False for a fail or a warning, None for any other word."""
        return True if self.status == _PASSED else False if self.status in _FAILED else None

    @property
    def is_left_out(self) -> bool:
        """True if DCGM did not run the test, for a reason of its own."""
        return self.status in _LEFT_OUT


@dataclass(frozen=True)
class DcgmDiag:
    """A run of `dcgmi diag`."""

    level: int
    results: tuple[DiagResult, ...] = ()
    why_not: str = ""
    """The reason why the diagnosis did not finish; empty if it did."""

    @property
    def ran(self) -> tuple[DiagResult, ...]:
        """The results of the tests that were run."""
        return tuple(result for result in self.results if not result.is_left_out)

    @property
    def left_out(self) -> str:
        """The tests that were not run, by name, with the GPUs if only some skipped it; empty if all tests ran."""
        names = dict.fromkeys(result.test for result in self.results if result.is_left_out)
        whole = {result.test for result in self.ran}
        return ", ".join(f"{name} on some GPUs" if name in whole else name for name in names)

    @property
    def why_unproved(self) -> str:
        """The reason why the level is not proved, even if no result is bad; empty if it is proved."""
        if self.why_not:
            return self.why_not
        if not self.ran:
            return "no test was run"
        if self.level > 1 and not any(result.loads for result in self.ran):
            return f"no test of level {self.level} was run, only those of level 1"
        return ""


class _Loose(BaseModel):
    """Base of the parts of dcgmi's JSON, which gets more keys with each version."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class _Warning(_Loose):
    warning: str = ""
    warnings: str = ""  # DCGM 3's name of the same, in the tests of level 1


class _Result(_Loose):
    status: str
    gpu_id: int | None = None  # DCGM 3
    entity_group: str = ""  # DCGM 4
    entity_id: int | None = None
    warnings: list[_Warning | str | None] = []
    info: str | list[str] = ""


class _Test(_Loose):
    name: str
    results: list[_Result | None] = []
    test_summary: _Result | None = None  # DCGM 4


class _Category(_Loose):
    category: str = ""
    tests: list[_Test | None] = []


class _Report(_Loose):
    test_categories: list[_Category | None] = []
    runtime_error: str = ""


def diagnose(host: Host, level: int, ended: threading.Event) -> DcgmDiag:
    """Run `dcgmi diag` on the node, until it or QA ends. Never raises HostError: the result has the reason."""
    try:
        done = run_dcgmi(host, DIAG_LIMITS[level].total_seconds(), "diag", "-r", str(level), "-j", ended=ended)
    except HostError as error:
        return DcgmDiag(level, why_not=f"no diagnosis: {error}")
    return read_diag(level, done)


def read_diag(level: int, done: ProgramResult) -> DcgmDiag:
    """Return the results that a finished `dcgmi diag -j` printed."""
    try:
        report = _parse(done.stdout)
    except ValueError as error:
        said = _line(done.output_line) or "nothing"
        return DcgmDiag(level, why_not=f"dcgmi diag ended with {done.exit_status}, and {error}; it printed: {said}")
    if report.runtime_error:
        return DcgmDiag(level, why_not=f"dcgmi diag: {_line(report.runtime_error)}")
    results = tuple(_results(report))
    why_not = ""
    if len(results) > _MOST_RESULTS:
        why_not = f"dcgmi diag printed {len(results)} results, more than the {_MOST_RESULTS} that are read"
    elif done.exit_status and not any(result.ok is False for result in results):
        why_not = f"dcgmi diag ended with {done.exit_status}, and names no test that failed"
    return DcgmDiag(level, results[:_MOST_RESULTS], why_not)


def _parse(text: str) -> _Report:
    """Return the report in dcgmi's output, which may begin with other lines. Raises ValueError with the reason."""
    try:
        data: Any = json.JSONDecoder().raw_decode(text[text.index("{") :])[0]
    except (ValueError, RecursionError):
        raise ValueError("no JSON can be read") from None
    found = next((data[root] for root in _ROOTS if root in data), None)
    try:
        return _Report.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part)[:_NAME_CHARACTERS] for part in first["loc"]) or _ROOTS[0]
        raise ValueError(f"its JSON has an unknown form ({where}: {first['msg']})") from None


def _results(report: _Report) -> Iterator[DiagResult]:
    for category in filter(None, report.test_categories):
        loads = category.category.lower() != _READS_ONLY
        for test in filter(None, category.tests):
            name = _NOT_OF_A_NAME.sub("-", test.name.lower()).strip("-")[:_NAME_CHARACTERS] or "unnamed"
            of_entities = [_result(name, result, loads) for result in test.results if result]
            yield from of_entities
            summary = _result(name, test.test_summary, loads) if test.test_summary else None
            # The summary adds errors that belong to no GPU, and tests without entities.
            if summary and (not of_entities or (summary.ok is not True and all(one.ok for one in of_entities))):
                yield summary


def _result(name: str, result: _Result, loads: bool) -> DiagResult:
    gpu, other = result.gpu_id, ""
    if result.entity_id is not None:
        if result.entity_group == "GPU":
            gpu = result.entity_id
        else:
            other = f"{result.entity_group} {result.entity_id}"
    texts = [one if isinstance(one, str) else one.warning or one.warnings for one in result.warnings if one]
    texts = texts or ([result.info] if isinstance(result.info, str) else result.info)
    detail = _line("; ".join(filter(None, (other, *texts))))
    return DiagResult(name, gpu if gpu is None or 0 <= gpu < 256 else None, _line(result.status).lower(), detail, loads)


def _line(text: str) -> str:
    """Return a text of dcgmi's on one line, shortened."""
    return printable(" ".join(text.split()), _DETAIL_CHARACTERS)
