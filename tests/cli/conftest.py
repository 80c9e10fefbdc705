"""A Prefect server for the tests that need one."""

from tests.support.prefect_api import whole_prefect

__all__ = ["whole_prefect"]
