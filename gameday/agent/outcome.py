"""The termination message: whatever happens, at most 4096 bytes of valid JSON."""

from __future__ import annotations

from pathlib import Path

from gameday.agent.task import Outcome

MAX_BYTES = 4096
"""The kubelet's limit for one container; it cuts the rest, which would leave broken JSON."""
_MAX_LINE = 600
_MAX_ERROR = 1000


def fit(outcome: Outcome) -> bytes:
    """The outcome as JSON of at most 4096 bytes: error and evidence are cut, the oldest evidence is kept.

    `undo_state` is kept whole or not at all (half an undo is worse than none);
    the error then says that the agent's log has it.
    """
    small = outcome.model_copy(
        update={
            "role": _clean(outcome.role, 100),
            "error": _clean(outcome.error, _MAX_ERROR),
            "undo_state": {_clean(key): _clean(value) for key, value in outcome.undo_state.items()},
            "evidence": (),
        }
    )
    if len(_json(small)) > MAX_BYTES - 200:
        note = "undo_state did not fit here; it is in the agent's log. "
        small = small.model_copy(update={"undo_state": {}, "error": _clean(note + small.error, _MAX_ERROR)})
    while len(_json(small)) > MAX_BYTES - 200:  # an error of characters that JSON writes as six bytes each
        small = small.model_copy(update={"error": small.error[: len(small.error) * 2 // 3]})
    lines = [_clean(line, _MAX_LINE) for line in outcome.evidence]
    kept = len(lines)
    while True:
        cut = [f"... {len(lines) - kept} more line(s) in the agent's log"] if kept < len(lines) else []
        raw = _json(small.model_copy(update={"evidence": (*lines[:kept], *cut)}))
        if len(raw) <= MAX_BYTES:
            return raw
        kept -= 1


def write(outcome: Outcome, path: Path) -> None:
    """In place: the kubelet bind-mounts this very file. Raises OSError."""
    path.write_bytes(fit(outcome))


def _json(outcome: Outcome) -> bytes:
    return outcome.model_dump_json().encode()


def _clean(text: str, limit: int | None = None) -> str:
    """Valid UTF-8 of at most `limit` characters; lone surrogates of undecodable input become `?`."""
    text = text.encode("utf-8", "replace").decode()
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."
