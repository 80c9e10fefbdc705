"""Kubernetes' time formats: metav1.Time and metav1.MicroTime."""

from __future__ import annotations

from datetime import UTC, datetime


def now_utc() -> datetime:
    return datetime.now(UTC)


def rfc3339(when: datetime) -> str:
    """Write a metav1.Time: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(when: datetime) -> str:
    """Write a metav1.MicroTime, which leases have: UTC, microseconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def rfc3339_now() -> str:
    """Write this second as a metav1.Time."""
    return rfc3339(now_utc())


def parse_time(text: str) -> datetime:
    """Read a metav1.Time or MicroTime.

    Raises:
        ValueError: It is neither.
    """
    return datetime.fromisoformat(text)


def parse_time_if_any(text: str | None) -> datetime | None:
    """Read a metav1.Time or MicroTime; None for an absent or unreadable one."""
    try:
        return parse_time(text) if text else None
    except ValueError:
        return None
