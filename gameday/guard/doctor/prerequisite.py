"""A prerequisite of a run, and the result of a part if its server does not answer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from gameday.errors import AdapterError, RefusedError


@dataclass(frozen=True)
class Prerequisite:
    """A thing that a run needs, and whether it is there."""

    area: str
    name: str
    ok: bool | None
    """True if the check passed; None: unknown, for the reason in `detail`."""
    detail: str
    fix: str = ""
    """The next step if it is not ok."""
    measured: str = field(default="", compare=False)
    """The value of this look, e.g. `0.1 s`. Checks that differ only in it count as equal."""

    @property
    def found(self) -> str:
        """The measured value, if there is one, and the detail."""
        return "; ".join(filter(None, (self.measured, self.detail)))


def checked_part(area: str, checks: Iterator[Prerequisite]) -> Iterator[Prerequisite]:
    """Yield the prerequisites of one part; if a server does not answer, the part fails and the next one goes on.

    Args:
        area: The area of the prerequisite that reports the failure.
        checks: The part's prerequisites; iterating over them may raise RefusedError or AdapterError.
    """
    try:
        yield from checks
    except (RefusedError, AdapterError) as error:
        yield failed_part(area, error)


def failed_part(area: str, error: RefusedError | AdapterError) -> Prerequisite:
    """Return an error that ended a part as a failed prerequisite, with the error's hint as its fix."""
    why = error.why if isinstance(error, RefusedError) else f"{error.url}: {error.cause}"
    return Prerequisite(area, "can be asked" if isinstance(error, AdapterError) else "found", False, why, error.hint)
