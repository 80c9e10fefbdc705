from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--record", action="store_true", default=False, help="write the goldens anew from the real server (test_lab.py)"
    )
