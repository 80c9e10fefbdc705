"""`gameday doctor` on a plan with arms: a guardrail that only measures anew says the same, and is one line."""

from __future__ import annotations

from typing import Any

import pytest

from gameday.cli.dry_run import _guardrails as lines_of_dry_run
from gameday.guard.base import Measurement
from gameday.guard.check import GuardrailCheck
from gameday.guard.doctor import guardrails
from gameday.guard.doctor.agent import _clock
from gameday.guard.doctor.prerequisite import Prerequisite

LIMIT = "at most 60 s (plan)"


def duration(value: str, *, ok: bool = True, limit: str = LIMIT) -> GuardrailCheck:
    return GuardrailCheck("duration", limit, Measurement(ok, value, "" if ok else "too long"))


def seen(monkeypatch: pytest.MonkeyPatch, checked: GuardrailCheck) -> Prerequisite:
    monkeypatch.setattr(guardrails, "check_all", lambda run, targets: [checked])
    target: Any = object()
    (found,) = guardrails.check_guardrails(target, (target,))
    return found


def test_two_looks_at_one_guardrail_are_the_same_check(monkeypatch: pytest.MonkeyPatch) -> None:
    first = seen(monkeypatch, duration("0.0 s"))
    assert first.found == f"0.0 s; limit: {LIMIT}"
    assert seen(monkeypatch, duration("0.1 s")) == first
    assert seen(monkeypatch, duration("0.1 s", limit="at most 9 s (profile)")) != first
    assert seen(monkeypatch, duration("61.0 s", ok=False)) != first


def test_two_looks_at_one_clock_are_the_same_check() -> None:
    assert _clock("gpu-1", 0.1, "by its exporter") == _clock("gpu-1", 0.2, "by its exporter")
    assert _clock("gpu-1", 0.1, "by its exporter") != _clock("gpu-1", 7.0, "by its exporter")


def test_a_dry_run_lists_the_guardrails_of_the_next_arm_only_where_they_say_something_else() -> None:
    first = [duration("0.0 s")]
    assert lines_of_dry_run(first, []) == ["guardrails:", f"  ok       duration: 0.0 s; limit: {LIMIT}"]
    assert lines_of_dry_run([duration("0.1 s")], first) == ["guardrails: as of the game-day before"]
    assert len(lines_of_dry_run([duration("61.0 s", ok=False)], first)) == 2
