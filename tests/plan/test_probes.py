"""Probes in a plan: what is refused, and where the message points."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from gameday.expect.probes import ExpectedProbe

HTTP = {"url": "http://api.example:8080/healthz?full=1"}


def probe(**keys: Any) -> ExpectedProbe:
    return ExpectedProbe.model_validate({"name": "p", "stays_for": "10s", **keys})


def test_each_kind_is_taken_with_its_bounds() -> None:
    assert probe(http=HTTP).holds_before
    assert probe(promql={"query": "up", "at_least": 1}, stays_for=None, within="5s").holds_before is False
    assert probe(job={"command": ["true"]}, returns_within="5s").kind == "job"
    exec_probe = {"namespace": "training", "selector": {"app": "x"}, "command": ["nvidia-smi", "-L"]}
    assert probe(exec=exec_probe).kind == "exec"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, "exactly one of"),
        ({"http": HTTP, "promql": {"query": "up", "at_least": 1}}, "exactly one of"),
        ({"http": HTTP, "stays_for": None}, "say when it must hold"),
        ({"http": HTTP, "within": "5s"}, "write two probes"),
        ({"promql": {"query": "up"}}, "at_least, at_most"),
        ({"http": {"url": "ftp://x"}}, "begins with http"),
        ({"http": {"url": "http://me:secret@x/"}}, "credentials"),
        ({"http": {"url": "http://169.254.169.254/latest/meta-data"}}, "metadata"),
        ({"http": {"url": "http://[fe80::1]/"}}, "metadata"),
        ({"http": {"url": "http://x:99999/"}}, "no URL"),
        ({"http": {"url": "http://x/\r\nHost: y"}}, "begins with http"),
        ({"http": HTTP | {"body": "a("}}, "RE2 cannot read"),
        ({"http": HTTP | {"body": "(?=a)"}}, "RE2 cannot read"),
        ({"job": {"command": ["/bin/sh", "-c", "true"]}}, "no shell"),
        ({"job": {"command": ["a\0b"]}}, "NUL"),
        ({"job": {"command": []}}, "at least 1"),
    ],
)
def test_a_probe_that_makes_no_sense_is_refused(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        probe(**keys)


def test_a_pattern_that_would_hang_python_is_read_in_no_time() -> None:
    from gameday.values.patterns import found_in

    assert not found_in("(a+)+$", "a" * 60_000 + "b")
