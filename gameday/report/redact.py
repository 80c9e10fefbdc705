"""A run without its site's names, for a report that leaves the house: hosts, addresses and the cluster get numbers.

This is done to the data, before anything is drawn. So a name that is also a word of the page's code breaks nothing,
and no section can forget it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache, lru_cache
from ipaddress import AddressValueError, IPv6Address
from typing import TYPE_CHECKING, Any, Literal, get_origin
from urllib.parse import urlsplit

from pydantic import BaseModel

from gameday.checks.outcome import fold_outcome
from gameday.checks.run import run_checks
from gameday.documents.source import parse
from gameday.errors import DocumentError
from gameday.history.events import AlertSeen, GuardChecked, NodeReplaced, RunStarted
from gameday.history.frames import SCHEMAS, Frames
from gameday.history.journal import History
from gameday.report.run_folder import RunFolder

if TYPE_CHECKING:
    import pandas as pd

Clean = Callable[[str], str]

_IPV4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?!\.?\d)"
_NO_IPV4 = "x.x.x.x"
# Candidates for an IP address; the standard library decides, so that a time of day or a PCI address stays.
_IPV6 = r"(?<![\w.])(?:[0-9A-Fa-f]{0,4}:){2,7}(?:(?:\d{1,3}\.){3}\d{1,3}|[0-9A-Fa-f]{0,4})(?!\w)"
# Candidates for a host's name, to look up: one pattern with a thousand names takes ten times as long.
_WORD = r"(?<![A-Za-z0-9_.])[A-Za-z0-9](?:\\*[.-]*[A-Za-z0-9_])*"
_WORDS_KEPT = 65_536
"""Remembered words of a log, because they repeat: a few megabytes."""


def redacted(run: RunFolder, clean: Clean | None = None) -> RunFolder:
    """Return the run with other names for every node, IP address, the cluster and who started it.

    Node names become node-1, node-2 … in their own order. A rehearsal's cluster belongs to nobody, and keeps its name.
    People's names in notes stay: they are not the site's.

    Args:
        run: The run, with its notes and the earlier runs of its plan.
        clean: The cleaning for all runs that share the new names; None: this run's own.
    """
    clean = clean or cleaner([run])
    records = (replace(one, boot=clean(one.boot), event=cleaned(one.event, clean)) for one in run.history.records)
    history = History(tuple(records), run.history.damaged)
    plan, frames = cleaned(run.plan, clean), _frames(run.frames, clean)
    verdicts = tuple(run_checks(plan, history, frames)) if plan else run.verdicts
    return replace(
        run,
        plan=plan,
        plan_text=clean(run.plan_text),
        previous_plan_text=clean(run.previous_plan_text),
        history=history,
        frames=frames,
        verdicts=verdicts,
        result=fold_outcome(history, list(verdicts)),
        problems=cleaned(run.problems, clean),
        guest_output=cleaned(run.guest_output, clean),
        files=tuple(replace(file, name=clean(file.name)) for file in run.files),
        notes=cleaned(run.notes, clean),
        notes_problem=clean(run.notes_problem),
        carried=cleaned(run.carried, clean),
        earlier=cleaned(run.earlier, clean),
    )


def cleaner(runs: Iterable[RunFolder], nodes: Iterable[str] = (), words: Iterable[tuple[str, str]] = ()) -> Clean:
    """Return the function that takes the site's names out of a text.

    Args:
        runs: Runs that name nodes, the cluster, and the person who started them.
        nodes: Names of further nodes.
        words: Further names, each with its replacement.
    """
    runs = list(runs)
    names = _node_names({*nodes, *(node for run in runs for node in _nodes(run))})
    others = [*words, *(pair for run in runs if run.started for pair in _of_start(run.started))]
    others += [(host, "the-server") for run in runs for host in _runbook_hosts(run)]
    return _cleaner(names, {name: word for name, word in others if name and name not in names})


def _node_names(nodes: Iterable[str]) -> dict[str, str]:
    """Map each node's name to a neutral one, and also the host part of a name with a domain, as in kernel logs."""
    nodes = sorted(nodes)
    names = {node: f"node-{number}" for number, node in enumerate(nodes, 1)}
    for node in nodes:
        host = node.partition(".")[0]
        if not host.isdigit():  # a node that is called by its address
            names.setdefault(host, names[node])
    return names


def _nodes(run: RunFolder) -> Iterator[str]:
    for record in run.history.records:
        event = record.event
        for holder in (event, getattr(event, "target", None), getattr(event, "snapshot", None)):
            if node := getattr(holder, "node", None):
                yield str(node)
        for target in getattr(event, "targets", ()):
            yield str(target.node)
        if isinstance(event, GuardChecked):
            yield from event.nodes
        if isinstance(event, NodeReplaced):
            yield event.successor
    for name, columns in SCHEMAS.items():
        if "node" in columns:
            yield from (str(node) for node in getattr(run.frames, name)["node"].dropna().unique() if node)
    yield from (node for past in run.earlier for node in past.targets)
    yield from run.plan.targets.names if run.plan else ()
    for text in (run.plan_text, run.previous_plan_text):
        yield from _named_in(text)


def _named_in(plan_text: str) -> Iterator[str]:
    with suppress(DocumentError):
        match parse(plan_text, "plan.yaml").data:
            case {"targets": {"names": [*names]}}:
                yield from map(str, names)


def _of_start(started: RunStarted) -> Iterator[tuple[str, str]]:
    """Yield the cluster as it is written in full, then its parts: its name, and the host of its server."""
    if started.trigger != "rehearsal":
        yield started.cluster, "the cluster"
        yield started.cluster_name, "the cluster"
    server = re.search(r"https?://[^\s)]+", started.cluster)
    yield (urlsplit(server[0]).hostname or "") if server else "", "the-server"
    yield started.operator, "the operator"
    yield from words_of_command(started.command)
    yield started.flow_run_url or "", "(hidden)"


def _runbook_hosts(run: RunFolder) -> Iterator[str]:
    """Yield the hosts that alerts link to: as shipped, the Prometheus that fired."""
    for alert in run.history.of(AlertSeen):
        with suppress(ValueError):  # no URL: an annotation is anybody's text
            yield urlsplit(alert.annotations.get("runbook_url", "")).hostname or ""


def words_of_command(command: str) -> Iterator[tuple[str, str]]:
    """Yield the path of the cluster's profile, if a shell line names it, with its replacement."""
    if profile := re.search(r"--profile[ =]('[^']*'|\S+)", command):
        yield profile[1].strip("'"), "(hidden)"


def _cleaner(nodes: dict[str, str], others: dict[str, str]) -> Clean:
    """Return a function that replaces whole names, the longest first: `gpu-1` is not found in `gpu-12`."""
    parts = [f"(?P<ipv4>{_IPV4})", f"(?P<ipv6>{_IPV6})", f"(?P<word>{_WORD})"]
    if others:
        known = "|".join(re.escape(name) for name in sorted(others, key=len, reverse=True))
        parts.insert(0, f"(?<![A-Za-z0-9_.-])(?P<other>{known})(?![A-Za-z0-9_-]|\\.[A-Za-z0-9])")

    heads, longest = frozenset(name.partition(".")[0] for name in nodes), max(map(len, nodes), default=0)

    @lru_cache(maxsize=_WORDS_KEPT)
    def without_node(word: str) -> str:
        return _without_node(word, nodes, heads, longest)

    def shown(found: re.Match[str]) -> str:
        match found.lastgroup:
            case "other":
                return others[found[0]]
            case "ipv4":
                return nodes.get(found[0], _NO_IPV4)
            case "ipv6":
                return _without_ipv6(found[0])
            case _:
                return without_node(found[0])

    pattern = re.compile("|".join(parts))
    return lambda text: pattern.sub(shown, text)


def _without_node(word: str, nodes: dict[str, str], heads: frozenset[str], longest: int) -> str:
    """Replace a node's name, also before a domain, at the end of a mirror pod's name, or escaped as in queries.

    The word may be long; only as much of it is examined as a name can have.

    Args:
        word: The word, which may contain a node's name.
        nodes: The replacement for each node's name.
        heads: The names up to their first dot.
        longest: Number of characters of the longest name.
    """
    host, *domain = word.replace("\\", "").split(".")
    near = max(0, len(host) - longest - 1)  # with the dash before the name
    starts = [0, *(at + 1 for at in range(near, len(host)) if host[at] == "-")]
    starts = [start for start in starts if host[start:] in heads]
    for length in range(min(len(domain), longest), -1, -1):
        for start in starts:
            if node := nodes.get(".".join((host[start:], *domain[:length]))):
                return host[:start] + node
    return re.sub(_IPV4, _NO_IPV4, word)


def _without_ipv6(text: str) -> str:
    address = text.removesuffix(":") if not text.endswith("::") else text  # a colon may follow it
    try:
        IPv6Address(address)
    except AddressValueError:
        return re.sub(_IPV4, _NO_IPV4, text)
    return f"x::x{text[len(address) :]}" if address != "::" else text


def cleaned(value: Any, clean: Clean) -> Any:
    """Clean every text in the value, except those with fixed values: enumerations, literals, run ids."""
    if isinstance(value, BaseModel):
        open_ = {name: getattr(value, name) for name in type(value).model_fields if not _is_fixed(type(value), name)}
        return value.model_copy(
            update={name: cleaned(one, clean) for name, one in (open_ | (value.model_extra or {})).items()}
        )
    if isinstance(value, dict):
        return {cleaned(key, clean): cleaned(one, clean) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(cleaned(one, clean) for one in value)
    return clean(value) if type(value) is str else value


@cache
def _is_fixed(model: type[BaseModel], field: str) -> bool:
    """Return True for a run's id, which is a time of day and the name of the folder that a link leads to."""
    return field == "run_id" or get_origin(model.model_fields[field].annotation) is Literal


def _frames(frames: Frames, clean: Clean) -> Frames:
    redacted = Frames()
    for name, columns in SCHEMAS.items():
        frame: pd.DataFrame = getattr(frames, name).copy()
        for column in (column for column, type_ in columns.items() if type_ == "string"):
            found = {text: clean(text) for text in frame[column].dropna().unique()}
            frame[column] = frame[column].map(found).astype("string")
        setattr(redacted, name, frame)
    return redacted
