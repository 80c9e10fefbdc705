"""Tie a child's life to its parent's, so that a killed parent leaves no process behind."""

from __future__ import annotations

import ctypes
import os
import signal

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# Looked up here, because between fork and exec a loader lock that another thread held would never be released.
_PRCTL = getattr(ctypes.CDLL(None, use_errno=True), "prctl", None)


def die_with_parent(sent: signal.Signals = signal.SIGTERM) -> None:
    """Ask the kernel to send `sent` to this process when its parent ends. Linux only; elsewhere a no-op.

    If the parent has already ended, this process exits at once.
    """
    parent = os.getppid()
    if _PRCTL is None:
        return
    _PRCTL(_PR_SET_PDEATHSIG, int(sent))
    if os.getppid() != parent:
        os.kill(os.getpid(), sent)
