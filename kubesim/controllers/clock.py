"""Kubernetes' time formats."""

from __future__ import annotations

from datetime import UTC, datetime


def now_utc() -> datetime:
    return datetime.now(UTC)


def rfc3339(when: datetime) -> str:
    """metav1.Time: UTC, whole seconds."""
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_time(text: str | None) -> datetime | None:
    """A metav1.Time or MicroTime; None for an absent or unreadable one."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None
