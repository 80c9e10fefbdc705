"""The cluster profile of a flow run."""

from __future__ import annotations

from gameday.cluster.profile import ClusterProfile, load_profile
from gameday.errors import ProfileError, RefusedError


def load_cluster(profile: str | None) -> ClusterProfile:
    """Load the profile of a flow run's cluster.

    Args:
        profile: The profile's path, or block:NAME; None: GAMEDAY_* of the environment.

    Raises:
        RefusedError: The profile cannot be used; the reason says what to do.
    """
    try:
        return load_profile(profile)
    except ProfileError as error:
        raise RefusedError(str(error)) from None
