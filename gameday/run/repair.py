"""The result of one target's repair, which QA needs to know."""

from __future__ import annotations

from dataclasses import dataclass

from gameday.run.targets import ChosenTarget


@dataclass(frozen=True)
class Repair:
    """A target after the recover step."""

    target: ChosenTarget
    left_out_because: str = ""
    """The reason why the repair was left out and the node stays out of service; empty if the node may be proved
    good."""
    cluster_repairs: bool = False
    """The cluster had to repair the node, so the game-day neither keeps it out of service nor returns it."""
