"""The termination message is never longer than the kubelet's limit, and is always valid."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from gameday.agent.task import AgentResult
from gameday.agent.termination_message import MAX_BYTES, encode

TEXT = st.text(st.characters(), max_size=300) | st.sampled_from(
    ["\x00" * 3000, "\ud800" * 2000, "\U0001f525" * 2000, '"' * 5000]
)


@settings(deadline=None, max_examples=150)
@given(
    error=TEXT,
    role=TEXT,
    evidence=st.lists(TEXT, max_size=40),
    undo_state=st.dictionaries(TEXT, TEXT, max_size=10),
)
def test_every_result_fits_and_is_read_back(
    error: str, role: str, evidence: list[str], undo_state: dict[str, str]
) -> None:
    result = AgentResult(
        role=role, ok=False, cleanliness="dirty", error=error, evidence=tuple(evidence), undo_state=undo_state
    )
    raw = encode(result)
    assert len(raw) <= MAX_BYTES
    read = AgentResult.model_validate_json(raw)
    assert (read.ok, read.cleanliness) == (False, "dirty")
    assert len(read.undo_state) in (0, len({key.encode("utf-8", "replace") for key in undo_state}))


def test_the_oldest_evidence_is_kept_and_the_cut_is_counted() -> None:
    lines = tuple(f"line {number} " + "x" * 200 for number in range(100))
    read = AgentResult.model_validate_json(
        encode(AgentResult(role="inject", ok=True, cleanliness="clean", evidence=lines))
    )
    kept = len(read.evidence) - 1
    assert kept > 10
    assert read.evidence[:-1] == lines[:kept]
    assert read.evidence[-1] == f"... {100 - kept} more line(s) in the agent's log"


def test_undo_state_that_does_not_fit_is_left_out_whole_and_the_error_says_so() -> None:
    state = {"path": "v" * 5000}
    read = AgentResult.model_validate_json(
        encode(AgentResult(role="inject", ok=True, cleanliness="clean", undo_state=state))
    )
    assert read.undo_state == {}
    assert "undo_state is too long" in read.error
