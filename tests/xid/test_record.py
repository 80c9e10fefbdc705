"""Each prefix that a reader of the kernel log writes is read by its position, with its stamp and its writer."""

from __future__ import annotations

import json

import pytest

from gameday.xid.lines import BEAT, Kind, beat_uptime_s, recognise
from gameday.xid.record import Writer, read_record
from tests.xid.known_lines import known_lines

LOST = "NVRM: Xid (PCI:0000:4e:00): 79, pid=1, name=x, GPU has fallen off the bus."
NOTE = "gameday-agent: GPU reset executed: PCI:0000:4e:00, success: true"
HOST = "ip-10-0-0-1.us-west-2.compute.internal"
KERNEL, ROOT, RING_BUFFER, ANYBODY = Writer.KERNEL, Writer.ROOT, Writer.RING_BUFFER, Writer.ANYBODY

# lines.csv has captured lines of some. util-linux 2.38.1 printed the others of dmesg; the rest are as RFC 3164, 5424,
# journalctl(1) and the CRI describe them, and as rsyslog writes them.
PREFIXES: list[tuple[str, Writer, float | None]] = [
    ("", ANYBODY, None),
    ("[  100.000001] ", RING_BUFFER, 100.000001),
    ("[100000.000001] ", RING_BUFFER, 100000.000001),
    ("[  100.000001][ T1234] ", RING_BUFFER, 100.000001),
    ("[  100.000001] [    T0] ", RING_BUFFER, 100.000001),
    ("[13414.653067 < 1341.223876>] ", RING_BUFFER, 13414.653067),
    ("[Sat Nov 28 03:17:02 2026] ", RING_BUFFER, None),
    ("[Nov28 03:17] ", RING_BUFFER, None),
    ("[  +0.000005] ", RING_BUFFER, None),
    ("[<    0.000123>] ", RING_BUFFER, None),
    ("2026-11-28T03:17:02,653067+00:00 ", ANYBODY, None),
    # dmesg -r writes a user's <14> as <7>, so this priority shows nothing.
    ("<3>[  100.000001] ", RING_BUFFER, 100.000001),
    ("kern  :err   : [  100.000001] ", KERNEL, 100.000001),
    ("user  :err   : [  100.000001] ", ROOT, 100.000001),
    ("kern  :err   : 2026-11-28T03:17:02,653067+00:00 ", KERNEL, None),
    ("192.168.11.119: kern:     err: [2026-04-22T21:25:20.466440686Z]: ", KERNEL, None),
    ("3,1227,100000001,-;", KERNEL, 100.000001),
    ("3,1227,100000001,-,caller=T1234;", KERNEL, 100.000001),
    ("11,1227,100000001,c;", ROOT, 100.000001),
    ("[  100.000001] kernel: ", ROOT, 100.000001),
    ("Nov 27 21:00:01 node-1 kernel: [  100.000001] ", ANYBODY, 100.000001),
    (f"Nov 27 21:00:01 {HOST} kernel: [  100.000001] ", ANYBODY, 100.000001),
    (f"Nov  7 21:00:01 {HOST} kernel: ", ANYBODY, None),
    ("Nov 27 21:00:01 kernel: ", ANYBODY, None),
    (f"Nov 27 2026 21:00:01 {HOST} kernel: [  100.000001] ", ANYBODY, 100.000001),
    ("Nov 27 21:00:01.123456 node-1 kernel: ", ANYBODY, None),
    ("2026-11-27T21:00:01+0000 node-1 kernel: ", ANYBODY, None),
    ("2026-11-27T21:00:01.123456+00:00 node-1 kernel: [  100.000001] ", ANYBODY, 100.000001),
    ("Fri 2026-11-27 21:00:01 UTC node-1 kernel: ", ANYBODY, None),
    ("1795813201.123456 node-1 kernel: ", ANYBODY, None),
    ("[  100.000001] node-1 kernel: ", ANYBODY, 100.000001),
    ("Nov 27 21:00:01 2001:db8::1 kernel: ", ANYBODY, None),
    ("<3>Nov 27 21:00:01 node-1 kernel: [  100.000001] ", ANYBODY, 100.000001),
    ("<11>Nov 27 21:00:01 node-1 kernel: ", ANYBODY, None),
    ("Nov 27 21:00:01 node-1 kern.err kernel: [  100.000001] ", ANYBODY, 100.000001),
    (f"<3>1 2026-11-27T21:00:01.123456+00:00 {HOST} kernel - - - ", ANYBODY, None),
    ('<3>1 2026-11-27T21:00:01Z node-1 kernel - - [a@1 b="c"][d@1 e="f"] [  100.000001] ', ANYBODY, 100.000001),
    (r'<3>1 2026-11-27T21:00:01Z node-1 kernel - - [a@1 b="c\"d]e"] [  100.000001] ', ANYBODY, 100.000001),
    ("<11>1 2026-11-27T21:00:01Z node-1 kernel - - - ", ANYBODY, None),
    ("MESSAGE=", ANYBODY, None),
    ("2026-11-27T21:00:01.123456789Z stdout F [  100.000001] ", RING_BUFFER, 100.000001),
    ("2026-11-27T21:00:01.123456789+00:00 stderr F 3,1227,100000001,-;", KERNEL, 100.000001),
]  # fmt: skip


@pytest.mark.parametrize(("prefix", "writer", "uptime_s"), PREFIXES, ids=lambda value: str(value)[:40])
def test_the_driver_is_found_behind_every_prefix(prefix: str, writer: Writer, uptime_s: float | None) -> None:
    event = recognise(prefix + LOST)
    assert event is not None
    assert (event.kind, event.code, event.pci, event.process) == (Kind.XID, 79, "0000:4e:00", "x")
    assert (event.writer, event.uptime_s) == (writer, uptime_s)
    for message in ("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal", "nvidia-peermem f:1 ERROR detected"):
        assert read_record(prefix + message).message == message


@pytest.mark.parametrize(("prefix", "writer", "uptime_s"), PREFIXES, ids=lambda value: str(value)[:40])
def test_a_note_of_the_agent_is_one_unless_the_kernel_wrote_it(
    prefix: str, writer: Writer, uptime_s: float | None
) -> None:
    event = recognise(prefix + NOTE)
    if writer is KERNEL:
        assert event is None
    else:
        assert event is not None
        assert (event.kind, event.success, event.writer) == (Kind.GPU_RESET, True, writer)


def test_the_stamp_of_a_line_behind_a_long_host_name_is_read() -> None:
    for host in ("node-1", HOST, "n" * 253):
        event = recognise(f"Nov 27 21:00:01 {host} kernel: [  100.000001] {LOST}")
        assert event is not None and event.uptime_s == 100.000001


@pytest.mark.parametrize(
    ("fields", "writer"),
    [
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "_SOURCE_MONOTONIC_TIMESTAMP": "100000001"}, KERNEL),
        ({"_TRANSPORT": "kernel", "SYSLOG_FACILITY": "1", "_SOURCE_MONOTONIC_TIMESTAMP": "100000001"}, ROOT),
        ({"_TRANSPORT": "kernel", "_SOURCE_MONOTONIC_TIMESTAMP": "100000001"}, RING_BUFFER),
        ({"_SOURCE_MONOTONIC_TIMESTAMP": "100000001"}, ANYBODY),
    ],
)
def test_an_entry_of_the_journal_says_who_wrote_it(fields: dict[str, str], writer: Writer) -> None:
    line = json.dumps({"__CURSOR": "s=1", "PRIORITY": "3", "_HOSTNAME": HOST} | fields | {"MESSAGE": LOST})
    event = recognise(line)
    assert event is not None and (event.code, event.writer) == (79, writer)
    assert event.line == (LOST if writer is ANYBODY else line)
    assert event.uptime_s == 100.000001
    longer = recognise(json.dumps({"a": "b" * 4096} | fields | {"MESSAGE": LOST}))
    assert longer is not None and longer.code == 79


JOURNAL = {"MESSAGE": LOST, "_TRANSPORT": "kernel", "SYSLOG_FACILITY": "0", "__REALTIME_TIMESTAMP": "1795813201000001"}
TALOS = {"msg": LOST, "clock": 100000001, "facility": "kern", "priority": "err", "talos-time": "2026-11-27T21:00:01Z"}


@pytest.mark.parametrize(
    ("line", "writer", "uptime_s"),
    [
        (json.dumps(JOURNAL | {"_SOURCE_MONOTONIC_TIMESTAMP": "100000001"}), KERNEL, 100.000001),
        (json.dumps(JOURNAL | {"__MONOTONIC_TIMESTAMP": "100000001"}), KERNEL, 100.000001),
        (json.dumps(JOURNAL | {"MESSAGE": list(LOST.encode())}), KERNEL, None),  # journald, of a text that is no UTF-8
        (json.dumps({"body": JOURNAL}), KERNEL, None),
        (json.dumps({"log": json.dumps(JOURNAL) + "\n", "stream": "stdout"}), KERNEL, None),
        ("2026-11-27T21:00:01.123456789Z stdout F " + json.dumps(JOURNAL), KERNEL, None),
        (json.dumps(TALOS), KERNEL, 100.000001),
        (json.dumps(TALOS | {"facility": "user"}), ROOT, 100.000001),
        (json.dumps({"priority": 3, "sequence": 7, "sec": 100, "usec": 1, "msg": LOST}), ANYBODY, 100.000001),
        (json.dumps({"pri": 3, "time": 100.000001, "msg": LOST}), ANYBODY, 100.000001),
        (json.dumps({"_entry": f"[  100.000001] {LOST}", "pod": "dmesg-1"}), RING_BUFFER, 100.000001),
        (json.dumps({"body": f"[  100.000001] {LOST}"}), RING_BUFFER, 100.000001),
    ],
)
def test_an_object_of_a_collector_is_read_with_its_stamp_and_its_writer(
    line: str, writer: Writer, uptime_s: float | None
) -> None:
    event = recognise(line)
    assert event is not None
    assert (event.code, event.pci, event.writer, event.uptime_s) == (79, "0000:4e:00", writer, uptime_s)


@pytest.mark.parametrize(
    "fields",
    [
        '"pri": 3, "time": Infinity', '"pri": 3, "time": NaN', '"pri": 3, "time": -1.0', '"pri": [], "time": 1e308',
        '"sequence": 1, "sec": -1, "usec": 0', f'"sequence": 1, "sec": 1{"0" * 99}, "usec": 0', '"sec": 1, "usec": 1',
    ],
)  # fmt: skip
def test_a_stamp_that_is_none_in_an_object_is_left_out(fields: str) -> None:
    event = recognise(f'{{{fields}, "msg": "{LOST}"}}')
    assert event is not None and event.uptime_s is None


@pytest.mark.parametrize("digits", ["9" * 5000, "٣", "-1", "1e9", ""])
def test_a_number_that_is_none_in_an_entry_of_the_journal_raises_nothing(digits: str) -> None:
    entry = JOURNAL | {"_SOURCE_MONOTONIC_TIMESTAMP": digits, "__REALTIME_TIMESTAMP": digits}
    event = recognise(json.dumps(entry))
    assert event is not None and event.code == 79
    assert recognise(json.dumps(entry | {"MESSAGE": [300, -1, True, "x", None]})) is None
    assert recognise(json.dumps(entry | {"MESSAGE": f"{'':15}{LOST}"})) is None, "the rest of another record"


def test_what_a_process_gives_to_a_log_as_json_does_not_speak_for_the_kernel() -> None:
    for key in ("MESSAGE", "message", "msg", "body", "_entry"):
        assert recognise(json.dumps({key: json.dumps(JOURNAL)})) is None
    assert recognise(json.dumps({"MESSAGE": LOST, "_TRANSPORT": "syslog"})) is None
    assert recognise(json.dumps({"body": JOURNAL | {"_TRANSPORT": "stdout"}})) is None
    deep = json.dumps(JOURNAL)
    for _ in range(9):
        deep = json.dumps({"log": deep})
    assert recognise(deep) is None


@pytest.mark.parametrize(
    ("line", "wall"),
    [
        (f"node-1: kern:     err: [2026-11-27T21:00:01.123456789Z]: {LOST}", "2026-11-27T21:00:01.123456+00:00"),
        (f"user: kern: info: [2026-11-27T21:00:01Z]: {LOST}", "2026-11-27T21:00:01+00:00"),
        (f"2026-11-27T21:00:01+0100 {HOST} kernel: {LOST}", "2026-11-27T21:00:01+01:00"),
        (f"Fri 2026-11-27 21:00:01 UTC node-1 kernel: {LOST}", "2026-11-27T21:00:01+00:00"),
        (f"<3>1 2026-11-27T21:00:01.5Z {HOST} kernel - - - {LOST}", "2026-11-27T21:00:01.500000+00:00"),
        (f"kern  :err   : 2026-11-27T21:00:01,653067+00:00 {LOST}", "2026-11-27T21:00:01.653067+00:00"),
        (json.dumps(JOURNAL), "2026-11-27T21:00:01.000001+00:00"),
        (f"2026-99-99T99:99:99Z {HOST} kernel: {LOST}", None),
        (f"[Fri Nov 27 21:00:01 2026] {LOST}", None),
        (f"Nov 27 21:00:01 {HOST} kernel: {LOST}", None),
        (f"2026-11-27T21:00:01.123456789Z stdout F {LOST}", None),
    ],
)
def test_a_lines_own_time_is_read_where_it_names_its_zone(line: str, wall: str | None) -> None:
    event = recognise(line)
    assert event is not None and (event.wall and event.wall.isoformat()) == wall
    assert event.is_dated == ("stdout" not in line), "containerd's time is of the shipper"


@pytest.mark.parametrize("key", ["MESSAGE", "message", "msg", "log"])
def test_a_line_in_json_is_read_like_the_line_in_it(key: str) -> None:
    line = json.dumps({key: f"[  100.000001] {LOST}\n", "stream": "stdout", "time": "2026-11-27T21:00:01Z"})
    assert recognise(line) == recognise(f"[  100.000001] {LOST}")


@pytest.mark.parametrize("text", ["{", "{}", "[]", '{"MESSAGE": 1}', '{"MESSAGE": []}', '{"log": 1}', '{"a":' * 3000])
def test_other_json_is_no_line(text: str) -> None:
    assert recognise(text) is None


def test_a_line_that_goes_on_with_the_record_before_is_no_record() -> None:
    for rest in (LOST, f"[  100.000001] {LOST}", NOTE, f"[999999.000001] {BEAT}"):
        assert recognise(f"{'':15}{rest}") is None
        assert beat_uptime_s(f"{'':15}{rest}") is None
    assert beat_uptime_s(f"[999999.000001] {BEAT}") == 999999.000001


def test_every_known_line_without_a_stamp_of_its_own_has_the_same_facts_behind_every_prefix() -> None:
    for known in known_lines():
        if known.carrier == "bare" and "\n" not in known.line:
            bare = recognise(known.line)
            for prefix, *_ in PREFIXES:
                event = recognise(prefix + known.line)
                assert (event and (event.kind, event.code, event.pci, event.severity)) == (
                    bare and (bare.kind, bare.code, bare.pci, bare.severity)
                ), prefix + known.line
