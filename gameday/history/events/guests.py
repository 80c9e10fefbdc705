"""A guest of a rehearsal: a real detector, whether its programs ran, what they printed and wrote elsewhere."""

from __future__ import annotations

from typing import Literal

from pydantic import AwareDatetime, Field

from gameday.history.events.model import EventModel

GUEST_FOLDER = "guest"
"""The folder beside the history with the output of the guest's programs, one file each."""


class GuestNamed(EventModel):
    """The guest that watches the cluster in place of our own detector."""

    kind: Literal["guest_named"] = "guest_named"
    name: str
    version: str
    says: str = Field(default="", description="regular expression of the guest's own word that it noticed a fault")


class GuestState(EventModel):
    """The state of one of the guest's programs at the run's first look, and each change since."""

    kind: Literal["guest_state"] = "guest_state"
    node: str | None = Field(description="the node that the program watches; None: it watches the whole cluster")
    change: Literal["running", "down", "ended by itself", "flooded", "not answering"]
    at: AwareDatetime
    detail: str = ""


class GuestSpoke(EventModel):
    """The first line of the guest's output after a target's fault by which it says that it noticed."""

    kind: Literal["guest_spoke"] = "guest_spoke"
    node: str
    line: str
    at: AwareDatetime = Field(description="when the line was read from the program")


class BystandersWatched(EventModel):
    """The run watches the nodes that are not targets, to see whether the guest leaves them alone."""

    kind: Literal["bystanders_watched"] = "bystanders_watched"
    nodes: int
    left_out: tuple[str, ...] = Field(default=(), description="targets of the season's other runs")


class BystanderChanged(EventModel):
    """A taint, a cordon or a condition of a node that is not a target came while the run watched."""

    kind: Literal["bystander_changed"] = "bystander_changed"
    node: str
    what: Literal["taint", "cordon", "condition"]
    value: str
    new_condition: bool = Field(default=False, description="a condition that the node did not have before")
    at: AwareDatetime
