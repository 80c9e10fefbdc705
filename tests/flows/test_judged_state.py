"""The states of judged flow runs, and what Prefect logs beside a red one."""

from __future__ import annotations

import logging
import re

import pytest

from gameday.errors import RefusedError
from gameday.exit_codes import ExitCode
from gameday.flows.judged_state import judged_state

CODES = [ExitCode.PASSED, ExitCode.FAILED, ExitCode.UNKNOWN, ExitCode.ABORTED, ExitCode.DIRTY, ExitCode.REFUSED]


@pytest.mark.parametrize("code", CODES)
def test_a_state_has_prefects_own_name_and_our_sentence(code: ExitCode) -> None:
    state = judged_state(code, "because", 1)
    assert state.name == ("Completed" if code is ExitCode.PASSED else "Failed")
    assert re.fullmatch(r"(Passed|Failed|Unknown|Aborted|Refused), cluster \w+\. because", state.message or "")


class Kept(logging.Handler):
    """Holds the exceptions that were logged."""

    def __init__(self) -> None:
        super().__init__()
        self.exceptions: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.exc_info
        self.exceptions.append(str(record.exc_info[1]))


def test_a_red_verdict_is_logged_as_no_exception_and_every_other_one_is() -> None:
    logger, kept = logging.getLogger("prefect.flow_runs"), Kept()
    state = judged_state(ExitCode.FAILED, "2 of 14 expectations did not hold", {"not": "an exception"})
    logger.addHandler(kept)
    try:
        with pytest.raises(TypeError) as made_up:
            state.result()
        for raised in (made_up.value, RefusedError("no node is fit", "label one"), RuntimeError("a bug")):
            logger.error("Engine execution exited with unexpected exception", exc_info=raised)
    finally:
        logger.removeHandler(kept)
    assert kept.exceptions == ["a bug"]
