"""The pod's termination message: always valid JSON of at most 4096 bytes."""

from __future__ import annotations

from pathlib import Path

from gameday.agent.task import AgentResult

MAX_BYTES = 4096
"""The kubelet's limit for one container. It cuts longer messages, which would break the JSON."""
_RESERVED_BYTES = 200
"""Room for the line that says how much evidence was cut."""
_MAX_ROLE_CHARACTERS = 100
_MAX_LINE_CHARACTERS = 600
_MAX_ERROR_CHARACTERS = 1000


def encode(result: AgentResult) -> bytes:
    """Return the result as JSON of at most 4096 bytes.

    Error and evidence are shortened; the oldest evidence is kept. `undo_state` is kept whole or dropped, because half
    of it would be worse than none; the error then points to the agent's log.
    """
    small = result.model_copy(
        update={
            "role": _clean(result.role, _MAX_ROLE_CHARACTERS),
            "error": _clean(result.error, _MAX_ERROR_CHARACTERS),
            "undo_state": {_clean(key): _clean(value) for key, value in result.undo_state.items()},
            "evidence": (),
        }
    )
    if len(_json(small)) > MAX_BYTES - _RESERVED_BYTES:
        error = f"undo_state is too long for this message; it is in the agent's log. {small.error}"
        small = small.model_copy(update={"undo_state": {}, "error": _clean(error, _MAX_ERROR_CHARACTERS)})
    while len(_json(small)) > MAX_BYTES - _RESERVED_BYTES:  # JSON writes some characters as six bytes
        small = small.model_copy(update={"error": small.error[: len(small.error) * 2 // 3]})
    lines = [_clean(line, _MAX_LINE_CHARACTERS) for line in result.evidence]
    kept = len(lines)
    while True:
        cut = [f"... {len(lines) - kept} more line(s) in the agent's log"] if kept < len(lines) else []
        raw = _json(small.model_copy(update={"evidence": (*lines[:kept], *cut)}))
        if len(raw) <= MAX_BYTES:
            return raw
        kept -= 1


def write(result: AgentResult, path: Path) -> None:
    """Write the termination message. Raises OSError.

    The file is overwritten in place, because the kubelet bind-mounts it.
    """
    path.write_bytes(encode(result))


def _json(result: AgentResult) -> bytes:
    return result.model_dump_json().encode()


def _clean(text: str, limit: int | None = None) -> str:
    """Return valid UTF-8 of at most `limit` characters; lone surrogates of undecodable input become `?`."""
    text = text.encode("utf-8", "replace").decode()
    return text if limit is None or len(text) <= limit else text[: limit - 3] + "..."
