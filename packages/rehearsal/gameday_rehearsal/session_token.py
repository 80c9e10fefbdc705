"""The token of one cluster's programs, which keeps out other users of the machine: they can reach every loopback port.

Only a client with the token can push lines to the log store or use the virtual hosts. It is passed on in the
environment, which no other user can read.
"""

from __future__ import annotations

import os
import secrets

TOKEN_VARIABLE = "GAMEDAY_REHEARSAL_TOKEN"  # noqa: S105 - the variable's name
"""The environment variable that holds the token."""


def new_token() -> str:
    """Return a token for one cluster's lifetime: 256 random bits."""
    return secrets.token_urlsafe(32)


def session_token() -> str:
    """Return the token in this process's environment, or a new one if there is none."""
    return os.environ.get(TOKEN_VARIABLE) or new_token()


def hosts_path(token: str) -> str:
    """Return the path of the virtual hosts at the nodes' server, with the token: an agent is given only a URL."""
    return f"/{token}/hosts"
