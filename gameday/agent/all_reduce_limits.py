"""Limits of an all-reduce's parts: a game-day waits for one and runs none, and needs no numpy."""

from __future__ import annotations

from gameday.agent import nccl_ranks
from gameday.agent.meeting import ANSWER_MARGIN_S, CONNECT_TIMEOUT_S, JOIN_TIMEOUT_S

LINKED_TIMEOUT_S = 2 * CONNECT_TIMEOUT_S + 15.0
LATENCY_LIMIT_S = 5.0
ROUND_LIMIT_S = 20.0
_RING_S = LINKED_TIMEOUT_S + LATENCY_LIMIT_S + 3 * (ROUND_LIMIT_S + ANSWER_MARGIN_S)
LONGEST_S = JOIN_TIMEOUT_S + max(_RING_S, nccl_ranks.LONGEST_S)
"""Seconds that a rank takes at the longest."""
