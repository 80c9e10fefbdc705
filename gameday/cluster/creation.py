"""Create an object under a fixed name, even while the API server loses its answers or its store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubernetes.client.exceptions import ApiException
from urllib3.exceptions import ProtocolError

from gameday.clock import Clock
from gameday.cluster.back_off import pause_s
from gameday.cluster.kube_errors import is_store_away

_TRIES = 6
# 0.2 s doubling to 3 s: about 6 s in all, like the transport's repetitions (gameday.cluster.kube_transport).
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.2, 3.0
# 429: too busy to begin. 502 to 504: a proxy in front of it, or the API server itself while it starts or stops.
_TRIED_AGAIN = (429, 502, 503, 504)
_CONFLICT = 409


def create(clock: Clock, post: Callable[[], Any]) -> Any | None:
    """Create an object, and try again if it is not known whether it was created.

    Args:
        clock: Waits between two attempts.
        post: Sends the object; its name must be unique.

    Returns:
        The object as it is stored; None if an earlier attempt had created it, but its answer was lost.

    Raises:
        ApiException: The server refuses it, or still fails at the sixth attempt.
        urllib3.exceptions.HTTPError: The server does not answer.
    """
    for failures in range(1, _TRIES + 1):
        try:
            return post()
        except ApiException as error:
            if error.status == _CONFLICT and failures > 1:
                return None
            may_pass = error.status in _TRIED_AGAIN or is_store_away(error.status, error.body or "")
            if not may_pass or failures == _TRIES:
                raise
        except ProtocolError:
            if failures == _TRIES:
                raise
        clock.sleep(pause_s(failures, _FIRST_PAUSE_S, _LONGEST_PAUSE_S))
    raise AssertionError("the last attempt returns or raises")
