"""A guest in the form in which the rehearsal hands it to the process that starts it."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from gameday_rehearsal.guests.models import Guest


class GuestOrder(BaseModel):
    """A guest with the places and addresses for its placeholders; written as a file."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    guest: Guest
    folder: Path
    """The folder that its processes run in."""
    outputs: Path
    """The folder for their output and their state."""
    kubeconfig: Path
    """The kubeconfig of the guest's own account."""
    loki_url: str
    prometheus_url: str
