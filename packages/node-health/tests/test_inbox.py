"""The lines that wait for the worker: every node gets its turn, and a flood hides no fault."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.cluster.loki import LogLine
from gameday.xid.lines import Form, format_xid
from gameday_health import inbox as module
from gameday_health.detect import Detection, LineReader, NodeLine
from gameday_health.inbox import Inbox, Matter, matter_of
from gameday_health.policy import Policy, Trust
from gameday_health.policy_files import load_policy, pod_log_signal
from gameday_health.signal import Signal, SignalKind

DEFAULT = load_policy().policy
NOW_NS = 1_800_000_000 * 10**9
PCI, OTHER_PCI = "0000:4e:00", "0000:5e:00"
RESET = f"gameday-agent: GPU reset executed: PCI:{PCI}, success: true"


def line(node: str, text: str, second: int) -> NodeLine:
    return NodeLine(node, LogLine(NOW_NS + second * 10**9, (), f"[{second:12.6f}] {text}"))


def an_inbox(policy: Policy = DEFAULT) -> tuple[Inbox[str], Counter[SignalKind]]:
    dropped: Counter[SignalKind] = Counter()
    return Inbox[str](policy, lambda source, count: dropped.update({source: count})), dropped


def everything(inbox: Inbox[str]) -> list[NodeLine | Signal | str]:
    """Take all that waits, lines as they were put."""
    found: list[NodeLine | Signal | str] = []
    while (item := inbox.get(0)) is not None:
        found.append(NodeLine(item.node, item.line) if isinstance(item, Detection) else item)
    return found


def matter(item: NodeLine, policy: Policy = DEFAULT) -> Matter | None:
    return matter_of(LineReader().read(item), policy)


def put(inbox: Inbox[str], *items: NodeLine | Signal) -> None:
    for item in items:
        assert inbox.put(item, 0)


def test_another_nodes_fault_waits_for_one_line_of_a_flood() -> None:
    inbox, dropped = an_inbox()
    put(inbox, *(line("loud", format_xid(13, PCI), second) for second in range(48_000)))
    put(inbox, line("quiet", format_xid(79, PCI), 1))
    taken = everything(inbox)
    assert [item.node for item in taken if isinstance(item, NodeLine)].index("quiet") <= 1
    assert len(taken) + dropped[SignalKind.KERNEL_LOG] == 48_001
    assert len(taken) < 2000


def test_the_flooding_nodes_own_fault_is_among_what_is_kept() -> None:
    inbox, _ = an_inbox()
    flood = [line("loud", format_xid(13, PCI, text=f"error {second}"), second) for second in range(4000)]
    fault, last = line("loud", format_xid(79, PCI), 3000), flood[-1]
    put(inbox, *flood[:3000], fault, *flood[3000:])
    taken = everything(inbox)
    assert fault in taken
    assert taken[-1] == last, "its stamp shows how far the log is read"


def test_a_fault_repeated_without_end_leaves_room_for_another_one() -> None:
    inbox, dropped = an_inbox()
    put(inbox, *(line("loud", format_xid(79, PCI), second) for second in range(9000)))
    put(inbox, other := line("loud", format_xid(79, OTHER_PCI), 9000))
    taken = everything(inbox)
    assert other in taken
    assert len(taken) + dropped[SignalKind.KERNEL_LOG] == 9001
    assert len(taken) < 1300, "those that always wait, the first and the newest beyond, and one at each turn"


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """One line of a node waits, and all others are sorted at once."""
    monkeypatch.setattr(module, "_MOST_OF_NODE", 1)
    monkeypatch.setattr(module, "_MOST_UNSORTED", 0)


@pytest.mark.usefixtures("no_room")
def test_a_fault_after_a_reset_is_a_new_one() -> None:
    inbox, _ = an_inbox()
    texts = [format_xid(13, PCI), format_xid(95, PCI), RESET, format_xid(95, PCI)]
    lines = [line("n1", text, second) for second, text in enumerate(texts)]
    put(inbox, *lines, *(line("n1", format_xid(13, PCI), second) for second in range(10, 20)))
    assert everything(inbox)[:4] == lines


@pytest.mark.usefixtures("no_room")
def test_a_watched_line_is_kept_as_often_as_it_is_watched_for() -> None:
    policy = load_policy("conservative").policy
    inbox, dropped = an_inbox(policy)
    texts = [format_xid(13, PCI), *[format_xid(48, PCI)] * 5]
    put(inbox, *(line("n1", text, second) for second, text in enumerate(texts)))
    watched = matter(line("n1", format_xid(48, PCI), 0), policy)
    assert watched and watched.times == 2
    assert len(everything(inbox)) == 1 + watched.times + 1
    assert dropped[SignalKind.KERNEL_LOG] == 2


@pytest.mark.usefixtures("no_room")
def test_a_line_that_the_policy_does_not_trust_takes_no_faults_place() -> None:
    policy = DEFAULT.model_copy(update={"trust": Trust.KERNEL})
    inbox, _ = an_inbox(policy)
    fault = f"kern  :err   : [{3:12.6f}] {format_xid(79, PCI, Form.BARE)}"
    genuine = NodeLine("n1", LogLine(NOW_NS + 3 * 10**9, (), fault))
    assert matter(genuine, policy)
    put(inbox, *(line("n1", format_xid(79, PCI, Form.BARE), second) for second in range(3)), genuine)
    put(inbox, *(line("n1", format_xid(79, PCI, Form.BARE), second) for second in range(4, 9)))
    assert genuine in everything(inbox)


@pytest.mark.usefixtures("no_room")
def test_a_fault_that_a_records_second_line_tells_keeps_its_first() -> None:
    inbox, _ = an_inbox(load_policy("conservative").policy)
    begun = line("n1", "NVRM: Xid (PCI:0000:03:00): 145, pid=1, name=a", 50)
    text = f"{'':15}b, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"
    rest = NodeLine("n1", LogLine(NOW_NS + 50 * 10**9 + 1, (), text))
    flood = [line("n1", format_xid(13, PCI), second) for second in (*range(9), *range(60, 69))]
    put(inbox, *flood[:9], begun, rest, *flood[9:])
    assert [item for item in everything(inbox) if item in (begun, rest)] == [begun, rest]


def test_each_source_has_its_turn() -> None:
    policy = load_policy("konduktor").policy
    inbox, _ = an_inbox(policy)
    put(inbox, *(pod_log_signal(f"invalid device ordinal {n}", "default", "n1", key=str(n)) for n in range(5000)))
    put(inbox, line("n1", format_xid(79, PCI), 1))
    assert isinstance(everything(inbox)[1], NodeLine)


def test_a_nodes_change_comes_before_all_lines() -> None:
    inbox, _ = an_inbox()
    put(inbox, line("n1", format_xid(79, PCI), 1))
    inbox.put_own("n1 has booted")
    inbox.put_own("n2 has joined")
    assert everything(inbox)[:2] == ["n1 has booted", "n2 has joined"]


def test_whoever_brings_too_much_for_all_nodes_together_has_to_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 2)
    inbox, _ = an_inbox()
    put(inbox, line("n1", format_xid(13, PCI), 1), line("n2", format_xid(13, PCI), 1))
    assert not inbox.put(late := line("n3", format_xid(13, PCI), 1), 0)
    assert inbox.get(0)
    assert inbox.put(late, 0)


TEXTS = [format_xid(13, PCI), format_xid(79, PCI), format_xid(79, OTHER_PCI), format_xid(95, PCI), RESET,
         "no line about a GPU: Xid", "\x00garbage", ""]  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.tuples(st.sampled_from(["", "n1", "n2"]), st.sampled_from(TEXTS))), max_size=60),
    st.integers(1, 4),
    st.integers(0, 9),
    st.integers(1, 9),
)
def test_every_fault_is_taken_in_its_order_whatever_comes(
    steps: list[tuple[str, str] | None], most: int, unsorted: int, at_a_turn: int
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_MOST_OF_NODE", most)
        patched.setattr(module, "_MOST_UNSORTED", unsorted)
        patched.setattr(module, "_SORTED_AT_A_TURN", at_a_turn)
        patched.setattr(module, "_PAUSE_S", 0)
        inbox, dropped = an_inbox()
        given_, taken = [], []
        for second, step in enumerate(steps):
            if step:
                given_.append(line(*step, second))
                put(inbox, given_[-1])
            elif isinstance(item := inbox.get(0), Detection):
                taken.append(NodeLine(item.node, item.line))
        taken += everything(inbox)
    assert len(taken) + dropped.total() == len(given_)
    for node in ("", "n1", "n2"):
        lines = [item for item in taken if isinstance(item, NodeLine) and item.node == node]
        assert lines == sorted(lines, key=lambda item: item.line.ns)
        assert firsts(given_, node) <= {item.line for item in lines}


def firsts(given_: list[NodeLine], node: str) -> set[LogLine]:
    """Return the first line of each fault, from the beginning and from each reset on, and every reset."""
    known: set[object] = set()
    found = set()
    for item in given_:
        about = matter(item) if item.node == node else None
        if about is None:
            continue
        if about.ends_faults:
            known.clear()
        if about.about not in known:
            known.add(about.about)
            found.add(item.line)
    return found


def test_a_signal_of_no_rule_has_no_matter() -> None:
    now = datetime.now(UTC)
    assert matter_of(Signal("n1", SignalKind.ALERT, "Watchdog", now, now, ""), DEFAULT) is None
