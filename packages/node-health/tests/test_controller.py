"""The controller's process through restarts of everything, its own included."""

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from gameday.shipped import checkout
from gameday.xid.lines import format_xid
from gameday_health.__main__ import main
from tests.health.conftest import (
    KEY,
    LOST,
    PCI,
    TAINT,
    Cluster,
    Servers,
    a_cluster,
    active,
    await_handled,
    await_taint,
    eventually,
    stamped,
)

EVERY_SIGNAL = str(checkout() / "examples" / "every-signal.yaml")


@pytest.fixture
def make_cluster(servers: Servers) -> Iterator[Callable[..., Cluster]]:
    with ExitStack() as stack:
        yield lambda *options: stack.enter_context(a_cluster(servers, *options))


@pytest.fixture
def cluster(make_cluster: Callable[..., Cluster]) -> Cluster:
    """Two nodes, everything running."""
    cluster = make_cluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    cluster.health.start()
    return cluster


@pytest.mark.slow
def test_the_konduktor_policy_taints_on_the_blogs_line(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster("--policy", "konduktor")
    cluster.add_node("n1")
    cluster.health.start()
    cluster.push(stamped("NVRM: Xid (0000:03:00): 14, Channel 00000001"))
    await_taint(cluster)
    assert eventually(lambda: cluster.reason("n1"))["policy"] == "konduktor"
    assert active(cluster, "14") == 1


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.slow
def test_nothing_is_lost_when_the_log_store_restarts(cluster: Cluster, kill: bool) -> None:
    at_ns = time.time_ns()
    cluster.logs.stop(kill=kill)
    eventually(lambda: cluster.metric("log_stream_connected", by="tail") == 0)
    cluster.logs.start()
    cluster.push(stamped(LOST), at_ns=at_ns)  # the shipper catches up
    await_taint(cluster)
    eventually(lambda: cluster.metric("log_stream_connected", by="tail") == 1)
    assert cluster.metric("kernel_events_total", node="n1", code="79") == 1


@pytest.mark.parametrize("kill", [True, False])
@pytest.mark.slow
def test_nothing_is_lost_when_the_api_server_restarts(cluster: Cluster, kill: bool) -> None:
    cluster.apiserver.stop(kill=kill)
    cluster.push(stamped(LOST))
    eventually(lambda: (cluster.metric("write_failures_total", what="node") or 0) >= 1)
    assert active(cluster) == 1
    cluster.apiserver.start()
    await_taint(cluster)
    cluster.boot("n1", "boot-2")  # and the watch is alive again
    eventually(lambda: active(cluster) is None)


@pytest.mark.slow
def test_a_restarted_controller_knows_what_it_knew(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    eventually(lambda: cluster.events("n1").get("GPUXid79"))
    cluster.health.stop(kill=True)
    cluster.push(stamped(format_xid(119, "0000:01:00")), "n2")
    cluster.health.start()
    assert eventually(lambda: active(cluster)) == 1
    await_taint(cluster, "n2")
    assert cluster.events("n1")["GPUXid79"]["count"] == 1

    cluster.patch_node("n1", {"spec": {"taints": None}})
    eventually(lambda: cluster.reason("n1") is None)
    cluster.health.stop(kill=True)
    cluster.health.start()
    cluster.push(stamped(LOST))  # `dmesg -w` of a new shipper pod ships the old line anew
    await_handled(cluster)
    assert cluster.taints("n1") == [] and active(cluster) is None
    assert cluster.health.stop() == 0


@pytest.mark.slow
def test_changes_from_while_it_was_away_are_seen(cluster: Cluster) -> None:
    cluster.push(stamped(LOST))
    await_taint(cluster)
    cluster.push(stamped(format_xid(74, PCI)), "n2")
    await_taint(cluster, "n2")
    cluster.health.stop(kill=True)
    cluster.boot("n1", "boot-2")
    cluster.patch_node("n2", {"spec": {"taints": None}})
    cluster.health.start()
    eventually(lambda: (cluster.reason("n1") or {}).get("remedied"))
    eventually(lambda: cluster.reason("n2") is None)
    assert active(cluster) is None and active(cluster, "74", "n2") is None
    assert cluster.taints("n1") == [TAINT] and cluster.taints("n2") == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [(["--kubeconfig", "/nowhere", "--loki-url", "http://127.0.0.1:1"], "no usable Kubernetes configuration"),
     (["--kubeconfig", __file__, "--loki-url", "http://127.0.0.1:1"], "no usable Kubernetes configuration"),
     (["--loki-url", "http://127.0.0.1:1"], "the pod's service account: no usable Kubernetes configuration"),
     (["--loki-url", "ftp://x"], "write a base URL"),
     (["--loki-url", "http://127.0.0.1:1", "--taint", "nonsense"], "write it like trainy"),
     (["--loki-url", "http://127.0.0.1:1", "--policy", "nobodys.yaml"], "No such file"),
     (["--loki-url", "http://127.0.0.1:1", "--policy", EVERY_SIGNAL], "give --prometheus-url"),
     (["--loki-url", "http://127.0.0.1:1", "--policy", EVERY_SIGNAL, "--prometheus-url", "http://x"],
      "give --alertmanager-url, --alert-port or both"),
     (["--loki-url", "http://127.0.0.1:1", "--alert-port", "0", "--alert-address", "0.0.0.0"],
      "--alert-address 0.0.0.0 is open to other machines: add --alert-token-file")],
)  # fmt: skip
def test_bad_options_are_reported_in_one_line(
    options: list[str], reason: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gameday_health", *options])
    assert main() == 64
    message = capsys.readouterr().err
    assert reason in message and "Traceback" not in message and message.count("\n") == 1


@pytest.mark.slow
def test_a_selector_that_does_not_parse_ends_the_controller(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    command = [*cluster.health.command, "--log-selector", "{"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    assert ran.returncode == 64
    assert "parse error" in ran.stderr and KEY not in ran.stderr
