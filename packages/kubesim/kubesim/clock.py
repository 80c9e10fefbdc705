"""Kubernetes' time formats: metav1.Time and metav1.MicroTime."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime


def _machine_time() -> datetime:
    return datetime.now(UTC)


_read: Callable[[], datetime] = _machine_time


@contextmanager
def reading(clock: Callable[[], datetime]) -> Iterator[None]:
    """Take the time from another clock (in UTC) while the block runs, in this thread only."""
    global _read  # noqa: PLW0603 - one process, one time
    before, _read = _read, clock
    try:
        yield
    finally:
        _read = before


def now_utc() -> datetime:
    return _read()


def rfc3339(when: datetime) -> str:
    """Return a time as a metav1.Time: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(when: datetime) -> str:
    """Return a time as a metav1.MicroTime, as leases have it: UTC, microseconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339_now() -> str:
    """Return the present second as a metav1.Time."""
    return rfc3339(now_utc())


def parse_time(text: str) -> datetime:
    """Read a metav1.Time or MicroTime.

    Raises:
        ValueError: It is neither.
    """
    return datetime.fromisoformat(text)


def parse_time_if_any(text: str | None) -> datetime | None:
    """Read a metav1.Time or MicroTime; return None if it is absent or unreadable."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
