"""The table of known kernel-log lines about Xids, SXids and lost GPUs: their forms, examples and sources.

`forms.csv` has the forms: the driver's printf, and what it means. `%w` is the word Fatal or Non-fatal, a double blank
stands for a run of them.

`lines.csv` has an example of each form, and of what differs within it: the facts in the line, what NVIDIA asks for, the
source, and the month in which the line was written or the source was read. `origin` is

* captured: a machine wrote it,
* documented: the driver's source or NVIDIA's documents have the form,
* constructed: somebody's test made it up.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path

_FOLDER = Path(__file__).parent
_CONVERSIONS = {
    "%04x": "[0-9a-f]{4}", "%02x": "[0-9a-f]{2}", "%x": "[0-9a-f]+", "%02u": r"\d{2,}", "%02d": r"\d{2,}",
    "%05d": r"\d{5,}", "%u": r"\d+", "%d": r"-?\d+", "%s": ".*", "%w": "(?:Fatal|Non-fatal)", "  ": " {2,}",
}  # fmt: skip
_STAMP = r"\[ *\d+\.\d+\] "
_CARRIERS = {
    "bare": "",
    "kernel": f"kernel: (?:{_STAMP})?",
    "dmesg": _STAMP,
    "dmesg-T": r"\[\w{3} \w{3} [ \d]\d [\d:]{8} \d{4}\] ",
    "dmesg-decoded": r"kern  :\w+ *: [-\dT:,+]+ ",
    "prefixed-dmesg": f"<3>{_STAMP}",
    "kmsg": r"\d,\d+,\d+,[-c](?:,\d+,-)?;",
    "syslog": rf"\w{{3}} +\d+ [\d:]{{8}} \w+ kernel: {_STAMP}",
    "journal": r"\w{3} +\d+ [\d:]{8} kernel: ",
    "talos": r"[\d.]+: kern: +\w+: \[[-\dT:.Z]+\]: ",
}


@dataclass(frozen=True)
class KnownLine:
    """A row of lines.csv; an empty field is a fact that the line does not have."""

    form: str
    origin: str
    carrier: str
    """The text before the driver's own."""
    line: str
    kind: str
    code: str
    pci: str
    unit: str
    severity: str
    link: str
    pid: str
    process: str
    response: str
    remedy: str
    source: str
    seen: str

    @property
    def id(self) -> str:
        """The row's name in a test's report."""
        return f"{self.form}-{self.code}-{self.pci}"

    @property
    def is_of_its_form(self) -> bool:
        """True if the line is what it is said to be."""
        text = re.sub(r"\n +", "\n", self.line)
        return bool(re.fullmatch(f"{_CARRIERS[self.carrier]}{_pattern(_templates()[self.form])}", text, re.DOTALL))


@cache
def known_lines() -> tuple[KnownLine, ...]:
    """Return every row of lines.csv."""
    names = [field.name for field in fields(KnownLine)]
    return tuple(KnownLine(**{name: row[name] for name in names}) for row in _rows("lines.csv"))


def forms_of(line: str) -> set[str]:
    """Return the forms of a line without a stamp that a driver really writes."""
    written = {known.form for known in known_lines() if known.origin != "constructed"}
    return {form for form in written if re.fullmatch(f"(?:kernel: )?{_pattern(_templates()[form])}", line)}


@cache
def _templates() -> dict[str, str]:
    return {row["form"]: row["template"] for row in _rows("forms.csv")}


def _pattern(template: str) -> str:
    parts = re.split("(" + "|".join(map(re.escape, _CONVERSIONS)) + ")", template)
    return "".join(_CONVERSIONS.get(part, re.escape(part)) for part in parts)


def _rows(name: str) -> list[dict[str, str]]:
    with (_FOLDER / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
