from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator

import pytest

from gameday.processes.prefect_app import collect_until


class _Node:
    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def no_collector() -> Iterator[None]:
    """No collection in the thread that allocates, as in the server."""
    gc.disable()
    yield
    gc.enable()


def test_garbage_is_collected_in_the_other_thread(no_collector: None) -> None:
    ended, gone = threading.Event(), threading.Event()
    collected_in: list[str] = []
    node = _Node()
    reference = weakref.ref(node, lambda _: (collected_in.append(threading.current_thread().name), gone.set()))
    del node
    collector = threading.Thread(target=collect_until, args=(ended,), name="garbage")
    collector.start()
    assert gone.wait(60)
    ended.set()
    collector.join()
    assert collected_in == ["garbage"] and reference() is None
