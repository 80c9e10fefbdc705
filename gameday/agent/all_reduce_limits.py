"""Time limits of an all-reduce. A game-day only waits for one, so this module does not import numpy."""

from __future__ import annotations

from gameday.agent import nccl_ranks
from gameday.agent.meeting import ANSWER_MARGIN_S, CONNECT_TIMEOUT_S, JOIN_TIMEOUT_S

LINKED_TIMEOUT_S = 2 * CONNECT_TIMEOUT_S + 15.0
LATENCY_LIMIT_S = 5.0
ROUND_LIMIT_S = 20.0
_RING_S = LINKED_TIMEOUT_S + LATENCY_LIMIT_S + 3 * (ROUND_LIMIT_S + ANSWER_MARGIN_S)
LONGEST_S = JOIN_TIMEOUT_S + max(_RING_S, nccl_ranks.LONGEST_S)
"""The longest time a rank takes, in seconds."""
