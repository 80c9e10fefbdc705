"""The token of one cluster's programs. It tells them from other users of the machine, who reach every port on loopback.

The log store takes lines, and the virtual hosts answer, only if a client has it. It is handed on in the environment,
which no other user can read.
"""

from __future__ import annotations

import os
import secrets

TOKEN_VARIABLE = "GAMEDAY_REHEARSAL_TOKEN"  # noqa: S105 - the variable's name
"""The environment variable that holds the token."""


def new_token() -> str:
    """Return a token for one cluster's life: 256 random bits."""
    return secrets.token_urlsafe(32)


def session_token() -> str:
    """Return the token in this process's environment; a new one, which nobody else has, if there is none."""
    return os.environ.get(TOKEN_VARIABLE) or new_token()


def hosts_path(token: str) -> str:
    """Return the path of the virtual hosts at the nodes' server: an agent is given a URL, and nothing else."""
    return f"/{token}/hosts"
