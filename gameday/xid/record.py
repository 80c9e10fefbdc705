"""Split a line of a kernel log into the prefix from its reader and the kernel's own message.

Only the log's reader chooses the prefix, and the message's first words are those of the code that printed it. Later in
a message there may be text that anybody can choose: the name of a process, of a file, of a device (docs/sources.md, Who
can write a line). So the prefix is read by position, from the line's start.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import StrEnum

MAX_LINE_CHARACTERS = 2048
"""A kernel record holds 1024 bytes (kernel/printk PRINTKRB_RECORD_MAX); the rest of a longer line is not from the
kernel."""
_MESSAGE_KEYS = ("MESSAGE", "message", "msg", "log", "body", "_entry")
"""The line's key in a JSON object, as written by the journal, Vector, Fluent Bit's input kmsg and Talos, Docker,
OpenTelemetry, and promtail's stage `pack`."""
_MOST_WRAPPINGS = 3
"""JSON within JSON: Docker's object with a collector's with the journal's."""
_MAX_JSON_CHARACTERS = 16_384
"""An entry of the journal as JSON is 1 to 2 KB; an entry with more fields than this is not the kernel's."""

_MOST_DIGITS = 16
"""Digits of a moment in microseconds, until the year 2286."""
_MOST_SECONDS = 10**10

_ANSI = re.compile(r"\x1b\[[0-9;?]{0,16}[@-~]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff]")

_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d|\ [A-Z]{1,5})?"
_DATE = r"[A-Z][a-z]{2}\ [ \d]\d(?:\ \d{4})?\ \d\d:\d\d:\d\d(?:\.\d{1,9})?(?:\ \d{4})?"
_TIME = rf"(?:(?:[A-Z][a-z]{{2}}\ )?(?:{_ISO}|{_DATE})|\d{{10}}\.\d{{1,9}})"
_HOST = r"[\w.:-]{0,254}\w"
_TAG = r"[\w.-]{1,64}:\ "
# BusyBox' syslogd names facility and level.
_LEVEL = r"(?:kern\.[a-z]{3,7}\ )?"
_DELTA = r"[<+]\ {0,12}\d{1,10}\.\d{1,9}>?"


def _stamp(name: str) -> str:
    """Return the pattern of a stamp in brackets; its group `name` has the seconds since boot."""
    seconds = rf"\ {{0,12}}(?P<{name}>\d{{1,10}}\.\d{{1,9}})"
    since_last_minute = r"[A-Z][a-z]{2}\d\d\ \d\d:\d\d"
    times = rf"{seconds}|{_TIME}|{since_last_minute}|\ {{0,12}}{_DELTA}"
    caller = r"(?:\ ?\[\ {0,8}[TC]\d{1,8}\])?"  # CONFIG_PRINTK_CALLER
    return rf"\[(?:{times})(?:\ {_DELTA})?\]:?{caller}\ ?"


# containerd's, of the moment when the shipper printed the line: it is a new one if the line is shipped again.
_CONTAINERD = re.compile(rf"{_ISO}\ (?:stdout|stderr)\ [FP](?::\S{{1,64}})?\ ", re.VERBOSE)
_STRUCTURED_DATA = r'\[(?:[^\]"]|"(?:\\.|[^"\\]){0,400}"){0,400}\]'  # a value may hold brackets
# In this order: the journal's export, /dev/kmsg, a priority, RFC 5424, `dmesg -x` and Talos, a stamp, RFC 3164 and
# `journalctl`, and a stamp that syslog passes on. A time alone is from `dmesg --time-format iso`.
_PREFIX = re.compile(
    rf"""
    (?:MESSAGE=)?
    (?:(?P<record>\d{{1,4}}),\d{{1,20}},(?P<microseconds>\d{{1,16}}),[-c+](?:,[^;]{{0,200}})?;)?
    (?:<\d{{1,3}}>)?
    (?P<rfc5424>1\ (?:-|{_ISO})\ \S{{1,255}}\ kernel\ \S{{1,128}}\ \S{{1,32}}
       \ (?:-|(?:{_STRUCTURED_DATA}){{1,4}})\ \ufeff?)?
    (?:(?:{_HOST}:\ )?
       (?P<facility>kern|user|mail|daemon|auth|syslog|lpr|news|uucp|cron|authpriv|ftp|local[0-7])\ {{0,8}}:\ {{0,8}}
       (?:emerg|alert|crit|err|warn|warning|notice|info|debug)\ {{0,8}}:\ )?
    (?P<stamp>{_stamp("seconds")})?
    (?P<sender>{_TIME}\ (?:{_HOST}\ (?={_LEVEL}{_TAG}))?|{_HOST}\ (?=kernel:\ ))?
    {_LEVEL}(?P<tag>kernel:\ )?
    (?:{_stamp("later_seconds")})?
    """,
    re.VERBOSE,
)
_CLOCK = re.compile(r"\d\d:\d\d")
_ZONED = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d| UTC)")


class Writer(StrEnum):
    """The programs that may have written a line, as far as its form shows."""

    KERNEL = "kernel"
    """Facility 0, which the kernel gives to no other writer."""
    ROOT = "root"
    """Written to /dev/kmsg by root on the node, like a game-day's faults and the agent's notes."""
    RING_BUFFER = "ring-buffer"
    """The kernel or root: the form does not show the facility."""
    ANYBODY = "anybody"
    """The form shows nothing, or is syslog's, to which every process on the host may write."""


@dataclass(frozen=True, slots=True)
class Record:
    """A line of a kernel log, split."""

    line: str
    """The whole line, cleaned."""
    message: str
    """The text after the prefix."""
    writer: Writer
    uptime_s: float | None = None
    """The line's own stamp, seconds since the node's boot."""
    wall: datetime | None = None
    """The line's own time by the node's clock; None if it has none, or one without a zone."""
    is_dated: bool = False
    """True for a line with its own stamp or time, which identifies it if it is shipped again."""
    is_continued: bool = False
    """True for a line that continues the record before: a newline in a message, after which `dmesg` indents."""


def clean(line: str | bytes) -> str:
    """Return at most MAX_LINE_CHARACTERS of a line, without terminal codes and control characters."""
    return _cleaned(_text(line, MAX_LINE_CHARACTERS)).strip()


def read_record(line: str | bytes) -> Record:
    """Split a line. Never raises."""
    return _read(_text(line, _MAX_JSON_CHARACTERS), _MOST_WRAPPINGS)


def _read(text: str, wrappings: int) -> Record:
    if printed := _CONTAINERD.match(text):
        text = text[printed.end() :]
    if wrappings and text.startswith("{") and (record := _of_json(text, wrappings - 1)):
        return record
    return _split(text)


def _text(line: str | bytes, most: int) -> str:
    return line[:most] if isinstance(line, str) else line[: most * 4].decode("utf-8", "replace")[:most]


def _cleaned(text: str) -> str:
    return _CONTROL.sub(" ", _ANSI.sub("", text))


def _split(text: str) -> Record:
    line = _cleaned(text[:MAX_LINE_CHARACTERS])
    if line.startswith(" "):
        return Record(line.strip(), line.strip(), Writer.ANYBODY, is_continued=True)
    line = line.rstrip()
    found = _PREFIX.match(line)
    assert found  # every part of it may be missing
    prefix, uptime_s = found[0], _uptime_s(found)
    is_dated = uptime_s is not None or _CLOCK.search(prefix) is not None
    return Record(line, line[found.end() :], _writer(found), uptime_s, _wall(prefix), is_dated)


def _wall(prefix: str) -> datetime | None:
    found = _ZONED.search(prefix)
    if not found:
        return None
    try:
        return datetime.fromisoformat(found[0].replace(" UTC", "Z"))
    except ValueError:
        return None


def _writer(found: re.Match[str]) -> Writer:
    if found["record"]:
        return _of_facility(int(found["record"]) >> 3)
    if found["facility"]:
        return _of_facility(0 if found["facility"] == "kern" else 1)
    if found["rfc5424"] or found["sender"]:
        return Writer.ANYBODY  # its priority is the sender's own claim (docs/sources.md, Who can write a line)
    if found["stamp"]:
        # The kernel does not name itself, but a writer for a reader of syslog's form does.
        return Writer.ROOT if found["tag"] else Writer.RING_BUFFER
    return Writer.ANYBODY


def _of_facility(facility: int) -> Writer:
    return Writer.ROOT if facility else Writer.KERNEL


def _uptime_s(found: re.Match[str]) -> float | None:
    if seconds := found["seconds"]:
        return float(seconds)
    if microseconds := found["microseconds"]:
        return int(microseconds) / 1e6
    return float(found["later_seconds"]) if found["later_seconds"] else None


def _of_json(text: str, wrappings: int) -> Record | None:
    """Read a line that a collector or journald wrote as a JSON object; None for any other text.

    The journal's transport proves who wrote an entry; an entry that is not the kernel's has no message for us.
    """
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if isinstance(entry, dict) and isinstance(body := entry.get("body"), dict):
        entry = body  # OpenTelemetry's receiver of the journal
    key, message = _message_of(entry) if isinstance(entry, dict) else ("", None)
    if message is None:
        return None
    if entry.get("_TRANSPORT", "kernel") != "kernel":
        return Record(clean(message), "", Writer.ANYBODY)
    # JSON that a process wrote to a log must not pass for the kernel's; `log` is a whole line that a shipper printed.
    # rsyslog's property msg begins with the blank behind the tag; what dmesg indents begins with more of them.
    record = _read(message.removeprefix(" "), wrappings if key == "log" else 0)
    uptime_s = _uptime_of_entry(entry)
    facility = entry.get("SYSLOG_FACILITY", entry.get("facility"))
    if "_TRANSPORT" not in entry and not (isinstance(facility, str) and "clock" in entry):
        return record if uptime_s is None else replace(record, uptime_s=uptime_s, is_dated=True)
    writer = _of_facility(0 if facility in ("0", "kern") else 1) if isinstance(facility, str) else Writer.RING_BUFFER
    # The whole entry, because two entries may have the same message.
    return replace(
        record, line=clean(text), writer=writer, uptime_s=uptime_s, wall=_wall_of_entry(entry), is_dated=True
    )


def _message_of(entry: Mapping[str, object]) -> tuple[str, str | None]:
    """Return the line in a JSON object, and its key; the journal writes a line with other bytes as numbers."""
    for key in _MESSAGE_KEYS:
        match entry.get(key):
            case str() as text:
                return key, text
            case [int(), *_] as numbers:
                read = [byte for byte in numbers if isinstance(byte, int) and 0 <= byte < 256]
                return key, bytes(read).decode("utf-8", "replace")
    return "", None


def _uptime_of_entry(entry: Mapping[str, object]) -> float | None:
    """Return the seconds since boot in the journal's fields, in Talos' `clock`, in Fluent Bit's and in dmesg's own."""
    for key in ("_SOURCE_MONOTONIC_TIMESTAMP", "__MONOTONIC_TIMESTAMP", "clock"):
        if (microseconds := str(entry.get(key))).isdecimal():
            return int(microseconds[:_MOST_DIGITS]) / 1e6
    match entry:
        case {"sequence": int(), "sec": int(whole), "usec": int(rest)} if (
            0 <= whole < _MOST_SECONDS and 0 <= rest < 10**6
        ):
            return whole + rest / 1e6
        case {"pri": _, "time": float(seconds)} if 0 <= seconds < _MOST_SECONDS:  # JSON knows infinity, too
            return seconds
    return None


def _wall_of_entry(entry: Mapping[str, object]) -> datetime | None:
    microseconds = str(entry.get("__REALTIME_TIMESTAMP"))
    if not microseconds.isdecimal() or len(microseconds) > _MOST_DIGITS:
        return None
    return datetime.fromtimestamp(int(microseconds) / 1e6, UTC)
