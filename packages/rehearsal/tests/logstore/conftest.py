"""A log store of one's own process, that can be killed and started again on the same port and folder."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from gameday.cluster.loki import LogStore
from gameday.cluster.profile import Endpoint
from tests.support.streams import KERNEL_LOG


class Store:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[str] | None = None
        # One for all: httpx reads the CA bundle, for 20 ms, for every client.
        self.http = httpx.Client(base_url=self.url, verify=False, timeout=30)

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gameday_rehearsal.logstore", "--port", str(self.port), "--data-dir", self.folder],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        assert ready == {"ready": True, "url": self.url}

    def stop(self, *, kill: bool = False) -> int:
        assert self.process is not None and self.process.stdout is not None
        if kill:
            self.process.kill()
        else:
            self.process.terminate()
        status = self.process.wait(10)
        self.process.stdout.close()
        self.process = None
        return status

    def push(self, entries: list[tuple[int, str]], node: str = "n1", metadata: dict[str, str] | None = None) -> None:
        labels = {**KERNEL_LOG, **({} if metadata else {"k8s_node_name": node})}
        values = [[str(ns), line, *([metadata] if metadata else [])] for ns, line in entries]
        answer = self.http.post("/loki/api/v1/push", json={"streams": [{"stream": labels, "values": values}]})
        assert answer.status_code == 204, answer.text

    def get(self, path: str, **parameters: object) -> httpx.Response:
        return self.http.get(f"/loki/api/v1/{path}", params={key: str(value) for key, value in parameters.items()})

    def client(self) -> LogStore:
        return LogStore(Endpoint(url=self.url))


@contextmanager
def running(folder: Path) -> Iterator[Store]:
    store = Store(folder)
    try:
        store.start()
        yield store
    finally:
        store.http.close()
        if store.process:
            store.stop(kill=True)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with running(tmp_path / "data") as store:
        yield store


@pytest.fixture(scope="module")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Shared by the tests that may leave nothing in it."""
    with running(tmp_path_factory.mktemp("store")) as store:
        yield store
        assert store.get("labels").json()["data"] == []
