"""A run without its site's names, for a report that leaves the house: hosts, addresses and the cluster are numbered.

Done to what was read, before anything is drawn: a name that is a word of the page's own code
breaks nothing then, and no section can forget it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any, Literal, get_origin
from urllib.parse import urlsplit

import pandas as pd
from pydantic import BaseModel

from gameday.checks import run_checks
from gameday.checks.outcome import fold
from gameday.history.events import RunStarted
from gameday.history.frames import SCHEMAS, Frames
from gameday.history.journal import History
from gameday.report.run import Run

Clean = Callable[[str], str]

_IPV4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"


def redacted(run: Run) -> Run:
    """The same run with every node, IPv4 address, the cluster and who started it under other names.

    Node names become node-1, node-2 … in their own order. A rehearsal's cluster is nobody's, and keeps its name.
    People's names in notes stay: they are not the site's.
    """
    clean = _cleaner(_names(run))
    history = History(tuple(_cleaned(record, clean) for record in run.history.records), run.history.damaged)
    plan, frames = _cleaned(run.plan, clean), _frames(run.frames, clean)
    verdicts = tuple(run_checks(plan, history, frames)) if plan else run.verdicts
    return replace(
        run,
        plan=plan,
        plan_text=clean(run.plan_text),
        previous_plan_text=clean(run.previous_plan_text),
        history=history,
        frames=frames,
        verdicts=verdicts,
        result=fold(history, list(verdicts)),
        problems=_cleaned(run.problems, clean),
        notes=_cleaned(run.notes, clean),
        notes_problem=clean(run.notes_problem),
        carried=_cleaned(run.carried, clean),
        earlier=_cleaned(run.earlier, clean),
    )


def _names(run: Run) -> dict[str, str]:
    nodes = sorted(set(_nodes(run)))
    names = {node: f"node-{number}" for number, node in enumerate(nodes, 1)}
    if started := run.started:
        names |= {name: word for name, word in _of_start(started) if name and name not in names}
    return names


def _nodes(run: Run) -> Iterator[str]:
    for record in run.history.records:
        event = record.event
        for holder in (event, getattr(event, "target", None), getattr(event, "snapshot", None)):
            if node := getattr(holder, "node", None):
                yield str(node)
        for target in getattr(event, "targets", ()):
            yield str(target.node)
    for name, columns in SCHEMAS.items():
        if "node" in columns:
            yield from (str(node) for node in getattr(run.frames, name)["node"].dropna().unique() if node)
    yield from (node for past in run.earlier for node in past.targets)


def _of_start(started: RunStarted) -> Iterator[tuple[str, str]]:
    """The cluster as it is written whole, then its parts: its name, and the host of its server."""
    if started.trigger != "rehearsal":
        yield started.cluster, "the cluster"
        yield started.cluster_name, "the cluster"
    server = re.search(r"https?://[^\s)]+", started.cluster)
    yield (urlsplit(server[0]).hostname or "") if server else "", "the-server"
    yield started.operator, "the operator"
    yield started.flow_run_url or "", "(hidden)"


def _cleaner(names: dict[str, str]) -> Clean:
    """Whole names only, the longest first: `gpu-1` must not be found in `gpu-12`."""
    known = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    either = f"(?<![A-Za-z0-9_.-])(?:{known})(?![A-Za-z0-9_-]|\\.[A-Za-z0-9])|{_IPV4}" if known else _IPV4
    pattern = re.compile(either)
    return lambda text: pattern.sub(lambda found: names.get(found[0], "x.x.x.x"), text)


def _cleaned(value: Any, clean: Clean) -> Any:
    """Every text in it, but what the models themselves fix: enumerations, and words out of a given few."""
    if isinstance(value, BaseModel):
        open_ = {name: getattr(value, name) for name in type(value).model_fields if not _is_fixed(type(value), name)}
        return value.model_copy(
            update={name: _cleaned(one, clean) for name, one in (open_ | (value.model_extra or {})).items()}
        )
    if isinstance(value, dict):
        return {_cleaned(key, clean): _cleaned(one, clean) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_cleaned(one, clean) for one in value)
    return clean(value) if type(value) is str else value


@cache
def _is_fixed(model: type[BaseModel], field: str) -> bool:
    return get_origin(model.model_fields[field].annotation) is Literal


def _frames(frames: Frames, clean: Clean) -> Frames:
    told = Frames()
    for name, columns in SCHEMAS.items():
        frame: pd.DataFrame = getattr(frames, name).copy()
        for column in (column for column, type_ in columns.items() if type_ == "string"):
            found = {text: clean(text) for text in frame[column].dropna().unique()}
            frame[column] = frame[column].map(found).astype("string")
        setattr(told, name, frame)
    return told
