"""Container logs, from the nodes' HTTPS endpoint through the real API server to kubectl."""

from __future__ import annotations

import os
import signal
import ssl
import subprocess
from collections.abc import Iterator

import httpx
import pytest

from tests.rehearsal.lab.nodes import Fleet, eventually
from tests.rehearsal.nodes.conftest import agent, simulated

pytestmark = pytest.mark.lab
XID = {"role": "inject", "gpu": 0, "fault": {"type": "xid", "xid": 79}, "hold_s": 60}


@pytest.fixture(scope="module")
def talker(fleet: Fleet) -> Iterator[str]:
    """A pod that has printed three lines and prints another every five seconds."""
    fleet.apply(simulated("talker", "gpu-node-1", policy="Always"))
    fleet.phase("talker", "Running")
    eventually(lambda: fleet.plane.kubectl("logs", "talker").count("\n") >= 3, "three lines")
    yield "talker"
    fleet.remove("talker")


def test_lines_are_chosen_by_tail_age_and_bytes(fleet: Fleet, talker: str) -> None:
    first = fleet.plane.kubectl("logs", talker).splitlines()[0]
    assert fleet.plane.kubectl("logs", talker, "--tail=2").count("\n") == 2
    assert first not in fleet.plane.kubectl("logs", talker, "--since=7s")
    assert fleet.plane.kubectl("logs", talker, "--limit-bytes=6") == first[:6]
    stamped = fleet.plane.kubectl("logs", talker, "--timestamps").splitlines()
    assert stamped[0].endswith(f"Z {first}")
    second = stamped[1].split()[0]
    assert fleet.plane.kubectl("logs", talker, f"--since-time={second}").splitlines()[0] == stamped[1].split(" ", 1)[1]


def test_following_shows_what_is_printed_later_and_ends_with_the_container(fleet: Fleet) -> None:
    fleet.apply(simulated("brief", "gpu-node-1", run_for="11s"))  # a line every 5 s
    fleet.phase("brief", "Running")
    assert fleet.plane.kubectl("logs", "-f", "brief").count("\n") == 2
    fleet.remove("brief")


def test_a_follower_that_leaves_leaves_no_error_behind(fleet: Fleet, talker: str) -> None:
    before = fleet.log.read_text()
    argv = ["kubectl", "logs", "-f", talker]
    env = {**os.environ, "KUBECONFIG": str(fleet.plane.admin)}
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        assert following.stdout.readline().startswith("step")
        following.send_signal(signal.SIGINT)
    printed = fleet.plane.kubectl("logs", talker).count("\n")
    # Only the next line's turn shows whether somebody still writes to the client that left.
    eventually(lambda: fleet.plane.kubectl("logs", talker).count("\n") > printed, "another line")
    assert fleet.log.read_text() == before


def test_the_previous_instance_keeps_its_log(fleet: Fleet) -> None:
    pod = simulated("crashing", "gpu-node-1", policy="OnFailure", run_for="6s", exit_code="1")
    fleet.apply(pod)
    fleet.phase("crashing", "Running")
    assert 'previous terminated container "main" in pod "crashing" not found' in fleet.refused("logs", "-p", "crashing")
    eventually(lambda: fleet.get("pod", "crashing")["status"]["containerStatuses"][0]["restartCount"], "a restart")
    assert fleet.plane.kubectl("logs", "--previous", "crashing").startswith("step")
    fleet.remove("crashing")


def test_a_real_process_prints_through_the_api_server(fleet: Fleet) -> None:
    fleet.apply(agent("printing", "gpu-node-2", XID))
    fleet.plane.kubectl("wait", "pod/printing", "--for=condition=Ready", "--timeout=55s")
    assert '"note":"injected"' in fleet.plane.kubectl("logs", "printing")
    fleet.remove("printing")


def test_a_container_that_has_not_started_is_said_to_wait(fleet: Fleet) -> None:
    pod = simulated("waiting", "gpu-node-1")
    pod["spec"]["initContainers"] = [{"name": "first", "image": "x", "command": ["sleep", "1000"]}]
    fleet.apply(pod)
    eventually(lambda: fleet.get("pod", "waiting")["status"].get("initContainerStatuses"), "seen by the node")
    assert 'container "main" in pod "waiting" is waiting to start' in fleet.refused("logs", "waiting", "-c", "main")
    fleet.remove("waiting")


def test_only_the_api_server_may_ask_a_kubelet(fleet: Fleet) -> None:
    folder, url = fleet.plane.folder, f"https://127.0.0.1:{fleet.ready['kubelet_port']}"

    def ask(pair: str | None, path: str) -> httpx.Response:
        tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        if pair:
            tls.load_cert_chain(folder / f"{pair}.crt", folder / f"{pair}.key")
        with httpx.Client(verify=tls, trust_env=False, timeout=30) as http:
            return http.get(f"{url}{path}")

    assert ask("apiserver-kubelet-client", "/healthz").text == "ok"
    assert ask("apiserver-kubelet-client", "/pods").json()["kind"] == "PodList"
    assert ask("admin-client", "/pods").status_code == 403
    with pytest.raises(httpx.TransportError):
        ask(None, "/pods")
    with pytest.raises(httpx.TransportError):
        ask("apiserver-etcd-client", "/pods")  # of another authority
    plain = httpx.get(f"{fleet.ready['metrics'].removesuffix('/metrics')}/pods", trust_env=False)
    assert plain.status_code == 404
