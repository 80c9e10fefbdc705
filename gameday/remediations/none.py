"""No remediation: the node is left as the fault's undo leaves it."""

from __future__ import annotations

from typing import ClassVar

from gameday.host.base import Host
from gameday.remediations.base import Remediation


class NoRemediation(Remediation):
    """Repairs nothing."""

    name: ClassVar[str] = "none"
    summary: ClassVar[str] = "Repairs nothing"
    drains_node: ClassVar[bool] = False

    def repair(self, gpu: int | None, host: Host, lines: list[str]) -> None:
        lines.append("no remediation was asked for")
