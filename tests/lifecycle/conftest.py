"""A cluster in memory for every test of a run's beginning and end."""

from tests.support.scripted.administrator import scripted_world

__all__ = ["scripted_world"]
