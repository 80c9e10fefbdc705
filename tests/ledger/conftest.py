"""A cluster in memory for the tests of ledgers and leases."""

from tests.support.scripted.administrator import scripted_world

__all__ = ["scripted_world"]
