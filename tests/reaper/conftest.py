"""A cluster in memory for every test of the reaper."""

from tests.support.scripted.administrator import scripted_world

__all__ = ["scripted_world"]
