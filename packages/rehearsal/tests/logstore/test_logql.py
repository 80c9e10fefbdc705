import pytest
from hypothesis import given
from hypothesis import strategies as st

from gameday.errors import LogQLError
from gameday_rehearsal.logstore.logql import parse
from gameday_rehearsal.logstore.times import duration, nanoseconds

STREAM = {"k8s_daemonset_name": "dmesg", "app": "a"}
XID = "NVRM: Xid (PCI:0000:4e:00): 79, pid=1"


@pytest.mark.parametrize(
    ("query", "wanted"),
    [
        ('{k8s_daemonset_name="dmesg"}', True),
        ('{k8s_daemonset_name!="dmesg", app="a"}', False),
        ('{k8s_daemonset_name=~"dm.*"}', True),
        ('{k8s_daemonset_name=~"dm"}', False),
        ('{app="a",k8s_daemonset_name!~"other|x"}', True),
        ("{k8s_daemonset_name=`dmesg`}", True),
        ('{missing="", app="a"}', True),
    ],
)
def test_stream_selectors(query: str, wanted: bool) -> None:
    assert parse(query).selects(STREAM) is wanted


@pytest.mark.parametrize(
    ("stages", "wanted"),
    [
        ('|= "NVRM: Xid"', True),
        ("|= `NVRM: Xid` != `PCI:0000:4f`", True),
        ('|~ "(?i)nvrm: xid" |~ `\\d+, pid`', True),
        ('!~ "Xid"', False),
        ('|= "absent" or "Xid"', True),
        ('!= "absent" or "Xid"', False),
        ('|~ "(?i)(SXid|nvrm: XID|nvidia-peermem.*invalid context)"', True),
        ('| k8s_node_name="n1"', True),
        ('| k8s_node_name=~"n[2-9]"', False),
        ('| k8s_node_name!="n2" and app="a" |= "Xid"', True),
        ('|= "\\u0058id \\x28PCI"', True),
    ],
)
def test_stages(stages: str, wanted: bool) -> None:
    query = parse('{app="a"} ' + stages)
    assert query.keeps(XID, {**STREAM, "k8s_node_name": "n1"}) is wanted


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("", "col 1: syntax error: unexpected $end"),
        ("up", "col 1: syntax error: unexpected IDENTIFIER"),
        ("{}", "at least one regexp or equality matcher"),
        ('{a=~".*"}', "empty-compatible"),
        ('{a="b"', "unexpected $end, expecting } or ,"),
        ('{a="b"} |= 5', "col 12: syntax error"),
        ('{a="b"} |~ "("', "error parsing regexp"),
        ('{a="b"} |~ "(?=x)"', "unsupported Perl syntax"),
        ('{a="b"}\n|= "x" }', "line 2, col 8"),
        ('{a="b"} | level', "expecting = or !="),
        ('{a="b"} | level="x" level', "unexpected level"),
    ],
)
def test_errors_say_where(query: str, said: str) -> None:
    with pytest.raises(LogQLError) as caught:
        parse(query)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("query", "missing"),
    [
        ('rate({a="b"}[5m])', "metric queries"),
        ('count_over_time({a="b"} |= "x" [1h])', "metric queries"),
        ('sum by (node) (rate({a="b"}[5m]))', "metric queries"),
        ('sum(rate({a="b"}[5m])) by (node)', "metric queries"),
        ("vector(1)+vector(1)", "metric queries"),
        ('( rate({a="b"}[5m]) > 0 )', "metric queries"),
        ('100 * rate({a="b"}[5m])', "metric queries"),
        ('{a="b"} | json', "the stage `| json`"),
        ('{a="b"} | json code="xid.code" | code="79"', "the stage `| json`"),
        ('{a="b"} | logfmt | level="error"', "the stage `| logfmt`"),
        ('{a="b"} |= "x" | line_format "{{.a}}"', "the stage `| line_format`"),
        ('{a="b"} | pattern `<_> Xid`', "the stage `| pattern`"),
        ('{a="b"} | c="d" or e="f"', "label filters joined by `or`"),
        ('{a="b"} | size > 10', "the sign > of LogQL"),
        ('{a="b"} | (c="d")', "the sign ( of LogQL"),
        ('{a="b"} |> `<_> Xid`', "the sign > of LogQL"),
    ],
)
def test_what_only_a_real_loki_has_is_refused_by_name(query: str, missing: str) -> None:
    with pytest.raises(LogQLError) as caught:
        parse(query)
    assert f"does not have {missing}" in str(caught.value)
    assert "a real Loki does" in str(caught.value)
    assert "parse error" not in str(caught.value)


def test_a_label_may_be_called_as_a_stage() -> None:
    assert parse('{a="b"} | json="x"').keeps("line", {"json": "x"})


@given(st.text(alphabet='{}=~!|"`,\\()and or x1\n\x00é', max_size=60))
def test_any_query_is_parsed_or_refused(text: str) -> None:
    try:
        query = parse(text)
    except LogQLError:
        return
    query.keeps("line", {})


def test_times() -> None:
    assert nanoseconds("1700000000") == nanoseconds("1700000000.0") == 1_700_000_000_000_000_000
    assert nanoseconds("1700000000000000001") == 1_700_000_000_000_000_001
    assert nanoseconds("2023-11-14T22:13:20.000000001Z") == 1_700_000_000_000_000_001
    assert nanoseconds("2023-11-14T23:13:20+01:00") == 1_700_000_000_000_000_000
    assert duration("1h30m") == 5400 * 10**9
    assert duration("10s") == 10**10
    for bad in ("", "yesterday", "-5", "nan", "inf", "1e400"):
        with pytest.raises(ValueError, match=r"cannot parse|out of range"):
            nanoseconds(bad)
    with pytest.raises(ValueError, match="duration"):
        duration("10")
