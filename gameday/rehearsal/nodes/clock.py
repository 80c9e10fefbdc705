"""Kubernetes' time formats."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> datetime:
    return datetime.now(UTC)


def rfc3339(when: datetime) -> str:
    """metav1.Time: whole seconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


def rfc3339_micro(when: datetime) -> str:
    """metav1.MicroTime, as a Lease has it."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> datetime:
    """Raises ValueError."""
    return datetime.fromisoformat(text)
