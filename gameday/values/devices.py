"""Devices of dynamic resource allocation, as a game-day sees them."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from gameday.values.nodes import Taint


class TaintedDevice(BaseModel):
    """A device of a node with one of its taints."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    driver: str
    device: str
    taint: Taint


class HeldDevice(BaseModel):
    """A device that a ResourceClaim holds for a pod."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    driver: str
    device: str
    pod: str
    """Namespace and name, separated by `/`."""
    uid: str
    """The pod's UID."""
