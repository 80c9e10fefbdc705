"""The metrics that dcgm-exporter exports with our counters file, by release; the file itself is the list.

The file's newer names are commented out, each below the first release that has it. A release gets the file as the
comments advise: with the names that it knows switched on. The file is too new for 3.3.5, which gets it without the
lines that it lacks.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gameday.shipped import shipped
from gameday_rehearsal.nodes.exporter_release import ExporterRelease

COUNTERS = shipped("deploy") / "alerts" / "dcgm-counters.csv"
"""Our counters file: field, type and help, as dcgm-exporter reads them."""
_HEADING = re.compile(r"# (?P<when>from|after) (?P<release>\d+\.\d+\.\d+)-")
_SWITCHED_OFF = re.compile(r"#(?=DCGM_)")


@dataclass(frozen=True)
class Counter:
    """A line of the file. `kind` is gauge, counter or label; a label is on every series and is not itself a series."""

    name: str
    kind: str
    help: str


def counters_of(release: ExporterRelease, file: Path = COUNTERS) -> tuple[Counter, ...]:
    """Return the lines that this release exports, in the file's order.

    Raises:
        ValueError: A name is switched off, and no comment above it says which release has it.
    """
    heading, lines = None, []
    for line in file.read_text(encoding="utf-8").splitlines():
        heading = _HEADING.match(line) or heading
        name = _SWITCHED_OFF.sub("", line)
        if name != line and _knows(release, heading, line):
            lines.append(name)
        elif line and not line.startswith("#"):
            lines.append(line)
    found = [Counter(*(cell.strip(" ") for cell in record)) for record in csv.reader(lines)]
    return tuple(counter for counter in found if counter.name not in release.lacks)


def release_for(names: Iterable[str]) -> ExporterRelease:
    """Return the first release, from the default on, that exports the most of these names."""
    wanted, releases = set(names), list(ExporterRelease)
    later = releases[releases.index(ExporterRelease.CODED) :]
    return max(later, key=lambda one: len(wanted & {counter.name for counter in counters_of(one)}))


def _knows(release: ExporterRelease, heading: re.Match[str] | None, line: str) -> bool:
    if heading is None:
        raise ValueError(f"{line!r} is switched off, and no comment above it says from which release on it is known")
    first = tuple(map(int, heading["release"].split(".")))
    return release.version > first if heading["when"] == "after" else release.version >= first
