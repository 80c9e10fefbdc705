"""A cluster in memory for the tests of a run's parts."""

from tests.support.scripted.administrator import scripted_world

__all__ = ["scripted_world"]
