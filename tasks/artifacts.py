"""Artifacts in the Prefect UI, which are optional: a step's own work is done by then, also without Prefect's server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import httpx
from prefect.settings import PREFECT_CLIENT_MAX_RETRIES, temporary_settings


@contextmanager
def where_prefect_answers() -> Iterator[None]:
    """Go on without the artifacts of the block where Prefect's server does not answer at two attempts.

    Prefect's own six attempts take 75 s for each artifact, while a person waits for the result.
    """
    with suppress(httpx.HTTPError), temporary_settings({PREFECT_CLIENT_MAX_RETRIES: 1}):
        yield
