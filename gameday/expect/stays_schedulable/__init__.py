"""A negative control: for as long as the plan says, the fault must not cost the target its place in the pool."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import ClassVar, Self

from gameday.documents.fields import Bound
from gameday.expect.base import Expectation, Path
from gameday.values.nodes import NodeRole


class StaysSchedulable(Expectation):
    needs: ClassVar = NodeRole.GPU

    stays_schedulable_for: Bound | None = None
    """Time from the fault going in for which the target must gain no taint and not be cordoned. It makes the plan a
    negative control, and excludes `taints` and `cordoned`."""

    @classmethod
    def bounds(cls, expect: Self) -> Iterator[tuple[Path, timedelta]]:
        if expect.stays_schedulable_for:
            yield ("stays_schedulable_for",), expect.stays_schedulable_for
