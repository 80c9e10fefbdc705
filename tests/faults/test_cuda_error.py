"""CUDA errors in one pod, against an API server in words: who may fail, in, out, out from another process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from gameday.agent.security import api_account_of, security_of
from gameday.agent.task import InjectTask
from gameday.api_clients import cuda_pods
from gameday.api_clients.exchange import Failed
from gameday.errors import HostError
from gameday.faults import cuda_error
from gameday.faults.cuda_error import CudaErrorFault, CudaErrorParameters
from gameday.faults.registry import parse_parameters
from gameday.host.base import ApiServer
from gameday.values.cuda_switch import ANNOTATION, felt_line, parse_switch, ready_line
from tests.host.fake import FakeHost

READY = ready_line("/gameday-cuda-switch/cuda-error", 7)
PODS = "/api/v1/namespaces/training/pods"


class FakeServer:
    """As much of an API server as the fault asks for: pods of two nodes, their annotations and logs."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, list[str]] = {}
        self.previous: dict[str, list[str]] = {}
        self.patched: Callable[[str, str], None] = self.feel
        self.refuses: set[str] = set()

    def add(self, name: str, node: str = "n1", log: tuple[str, ...] = (READY, "step 1"), **labels: str) -> None:
        consent = {"app": "pretrain", "gameday.dev/may-fail-cuda": "true"}
        self.pods[name] = {
            "metadata": {"namespace": "training", "name": name, "uid": f"uid-{name}", "labels": consent | labels},
            "spec": {"nodeName": node, "containers": [{"name": "trainer"}]},
            "status": {"phase": "Running"},
        }
        self.logs[name] = list(log)

    def feel(self, name: str, text: str) -> None:
        """Do what a pod does whose library works."""
        if value := parse_switch(text, datetime.now(UTC)):
            self.logs[name].append(felt_line(value, 7))

    def restart(self, name: str, text: str) -> None:
        """Do what a pod does whose container is restarted right after it failed."""
        self.feel(name, text)
        self.previous[name], self.logs[name] = self.logs[name], [READY]

    def values(self) -> dict[str, str]:
        return {
            name: pod["metadata"]["annotations"][ANNOTATION]
            for name, pod in self.pods.items()
            if pod["metadata"].get("annotations")
        }

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "",
        body: bytes | None = None,
        content_type: str = "",
    ) -> bytes:
        query = query or {}
        if method in self.refuses:
            raise Failed(403, "HTTP 403: forbidden")
        if path == PODS:
            return orjson.dumps({"items": [pod for pod in self.pods.values() if self._selected(pod, query)]})
        name, _, sub = path.removeprefix(f"{PODS}/").partition("/")
        if name not in self.pods:
            raise Failed(404, "HTTP 404")
        if sub == "log":
            log = self.previous.get(name) if query.get("previous") else self.logs[name]
            if log is None:
                raise Failed(400, "HTTP 400: previous terminated container not found")
            return "\n".join(log).encode()
        meta = self.pods[name]["metadata"]
        if method == "PATCH":
            sent = orjson.loads(body or b"")["metadata"]
            if sent["uid"] != meta["uid"]:
                raise Failed(409, "HTTP 409")
            meta["annotations"] = {key: text for key, text in sent["annotations"].items() if text is not None}
            self.patched(name, sent["annotations"][ANNOTATION] or "")
        return orjson.dumps(self.pods[name])

    def _selected(self, pod: dict[str, Any], query: Mapping[str, str]) -> bool:
        wanted = dict(pair.split("=") for pair in query["labelSelector"].split(","))
        on_node = query["fieldSelector"] == f"spec.nodeName={pod['spec']['nodeName']}"
        return on_node and wanted.items() <= pod["metadata"]["labels"].items()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    monkeypatch.setattr(cuda_pods, "Exchange", lambda *_: fake)
    monkeypatch.setattr(cuda_pods, "tls_context", lambda _: None)
    monkeypatch.setattr(cuda_error, "_LOOK_EVERY_S", 0.001)
    return fake


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    host = FakeHost()
    host.api = ApiServer(url="https://127.0.0.1:1", ca_file=tmp_path / "ca", token_file=tmp_path / "token", node="n1")
    return host


def parameters(**given: Any) -> CudaErrorParameters:
    wanted = {"error": "launch-failed", "namespace": "training", "selector": {"app": "pretrain"}}
    return CudaErrorParameters.model_validate(wanted | given)


def test_one_pod_fails_and_no_other_and_another_process_takes_it_out(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    server.add("elsewhere", node="n2")
    server.add("of-others", app="finetune")
    wanted = parameters(new_processes=True)
    state = CudaErrorFault().prior_state(wanted, 0, host)
    assert state == {"namespace": "training", "pod": "one", "uid": "uid-one"}
    assert server.values() == {}
    before = datetime.now(UTC)
    evidence = CudaErrorFault().inject(wanted, 0, host)
    value = parse_switch(server.values()["one"], datetime.now(UTC))
    assert list(server.values()) == ["one"]
    assert value is not None and (value.code, value.for_new_processes) == (719, True)
    assert (
        int(before.timestamp())
        <= int(value.until.timestamp() - wanted.hold.total_seconds())
        <= datetime.now(UTC).timestamp()
    )
    assert evidence.undo_state == state and evidence.written_at is not None and evidence.written_at >= before
    assert f"written: {value}" in evidence.lines
    assert not CudaErrorFault().verify_undone(wanted, 0, host, state)
    for _ in range(2):
        CudaErrorFault().undo(wanted, 0, host, state)
    assert CudaErrorFault().verify_undone(wanted, 0, host, state)
    assert server.values() == {}


def test_an_undo_without_its_state_finds_what_is_on_on_this_node(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    CudaErrorFault().inject(parameters(), 0, host)
    assert not CudaErrorFault().verify_undone(parameters(), 0, host, {})
    CudaErrorFault().undo(parameters(), 0, host, {})
    assert CudaErrorFault().verify_undone(parameters(), 0, host, {})
    assert server.values() == {}


def test_a_pod_whose_container_restarted_at_once_still_says_that_it_failed(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    server.patched = server.restart
    CudaErrorFault().inject(parameters(), 0, host)
    assert server.logs["one"] == [READY]


def test_a_pod_that_is_gone_or_another_of_its_name_is_out(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    state = CudaErrorFault().inject(parameters(), 0, host).undo_state
    server.pods["one"]["metadata"]["uid"] = "another"
    CudaErrorFault().undo(parameters(), 0, host, state)
    assert CudaErrorFault().verify_undone(parameters(), 0, host, state)
    assert server.values() != {}, "another pod's annotation is not ours"
    server.pods.clear()
    CudaErrorFault().undo(parameters(), 0, host, state)
    assert CudaErrorFault().verify_undone(parameters(), 0, host, state)


def refused(host: FakeHost, server: FakeServer) -> str:
    with pytest.raises(HostError) as error:
        CudaErrorFault().prior_state(parameters(), 0, host)
    assert server.values() == {} or "already" in str(error.value)
    return str(error.value)


def test_nothing_is_changed_without_consent_or_with_two_candidates(host: FakeHost, server: FakeServer) -> None:
    server.add("one", **{"gameday.dev/may-fail-cuda": "false"})
    assert "no pod runs in namespace training on n1" in refused(host, server)
    server.add("two")
    server.add("three")
    assert "2 pods run" in refused(host, server) and "(three, two)" in refused(host, server)
    server.pods["three"]["status"]["phase"] = "Succeeded"
    assert CudaErrorFault().prior_state(parameters(), 0, host)["pod"] == "two"
    server.pods["two"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "no pod runs" in refused(host, server)


def test_nothing_is_changed_where_the_library_did_not_load(host: FakeHost, server: FakeServer) -> None:
    library = "object '/c/libgameday-cuda-error.so'"
    broken = f"ERROR: ld.so: {library} from LD_PRELOAD cannot be preloaded (wrong ELF class): ignored."
    for line, why in (
        ("step 1", "no process in it has said"),
        (broken, "the loader could not load libgameday-cuda-error.so: ld.so: object"),
        ("gpu-gameday cuda: not ready: GAMEDAY_CUDA_SWITCH names no file, pid 7", "names no file"),
    ):
        server.add("one", log=(line,))
        assert why in refused(host, server)
    server.add("one", log=(broken, READY))
    assert CudaErrorFault().prior_state(parameters(), 0, host)["pod"] == "one", "another of its processes has it"


def test_a_pod_that_is_switched_on_already_is_left_alone(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    CudaErrorFault().inject(parameters(), 0, host)
    assert "annotate pod one gameday.dev/cuda-error-" in refused(host, server)


def test_a_pod_that_never_says_it_fails_is_an_error_that_leaves_its_undo_state(
    host: FakeHost, server: FakeServer
) -> None:
    server.add("one")
    server.patched = lambda name, text: None
    state = CudaErrorFault().prior_state(parameters(), 0, host)
    with pytest.raises(HostError, match="no process in pod training/one said in time that it fails"):
        CudaErrorFault().inject(parameters(hold="1s"), 0, host)
    assert not CudaErrorFault().verify_undone(parameters(), 0, host, state)
    CudaErrorFault().undo(parameters(), 0, host, state)
    assert CudaErrorFault().verify_undone(parameters(), 0, host, state)


def test_a_server_that_forbids_it_says_what_to_apply(host: FakeHost, server: FakeServer) -> None:
    server.add("one")
    server.refuses = {"GET"}
    assert "is deploy/cuda-error applied in training?" in refused(host, server)


def test_an_agent_that_does_not_know_its_node_refuses(host: FakeHost, server: FakeServer) -> None:
    host.api = host.api.model_copy(update={"node": ""}) if host.api else None
    assert "not told its node's name" in refused(host, server)


def test_a_hold_that_the_library_would_not_take_is_refused() -> None:
    with pytest.raises(ValidationError, match="in one hour"):
        parameters(hold="61m")


def test_a_compound_has_the_account_the_rights_and_the_time_of_its_parts() -> None:
    part = parameters(hold="3m").model_dump(mode="json")
    compound = {"type": "compound", "hold": "3m", "parts": [{"type": "xid", "xid": 94}, part]}
    wanted = parse_parameters(compound)
    task = InjectTask(run_id="r", node="n1", gpu=0, fault=wanted.model_dump(mode="json"), hold_s=180)
    assert api_account_of(task) == "gameday-cuda-error"
    assert security_of(task).privileged, "the kernel log needs it"
    assert wanted.longest_injection == parameters().longest_injection
    assert wanted.wanted_pods() == parameters().wanted_pods()
    alone = task.model_copy(update={"fault": part})
    security = security_of(alone)
    assert (security.privileged, security.host_pid, security.capabilities) == (False, False, ())
