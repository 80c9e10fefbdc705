"""Fixtures of the tests about faults."""

from __future__ import annotations

import pytest

from tests.faults.gpu_model import ModelHost


@pytest.fixture
def host() -> ModelHost:
    return ModelHost()
