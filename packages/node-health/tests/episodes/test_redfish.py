"""The power cycle over Redfish, against OpenStack's emulator of a BMC."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import bcrypt
import httpx
import pytest

from gameday.errors import AdapterError
from gameday_health.episodes.model import State
from gameday_health.episodes.policy import Bmc
from gameday_health.episodes.redfish import power_cycle
from tests.health.conftest import eventually
from tests.health.episodes.conftest import OURS, Agents, Ward, boot
from tests.support.ports import free_ports

SYSTEM = "27946b59-9e44-4fa7-8e91-f3527a1ef094"
USER, PASSWORD = "operator", "not-a-secret"


class Emulator:
    """A BMC with one machine, whose power changes are noted while `obeys`."""

    def __init__(self, folder: Path, systems: int = 1) -> None:
        self.folder = folder
        (self._port,) = free_ports(1)
        self.url = f"http://127.0.0.1:{self._port}"
        self.powers: list[str] = []
        """The power state after each change."""
        self.auth = httpx.BasicAuth(USER, PASSWORD)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        hashed = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode().replace("$2b$", "$2y$")
        (folder / "users").write_text(f"{USER}:{hashed}\n")
        (folder / "password").write_text(PASSWORD)
        (folder / "state").mkdir()
        made = [
            {"uuid": f"{SYSTEM[:-1]}{index}", "name": f"m{index}", "power_state": "On", "external_notifier": True}
            | {"nics": []}
            for index in range(systems)
        ]
        settings = {
            "SUSHY_EMULATOR_AUTH_FILE": str(folder / "users"),
            "SUSHY_EMULATOR_STATE_DIR": str(folder / "state"),
            "SUSHY_EMULATOR_FAKE_SYSTEMS": made,
            "EXTERNAL_NOTIFICATION_URL": f"http://127.0.0.1:{self._server.server_port}",
        }
        config = folder / "sushy.py"
        config.write_text("".join(f"{name} = {value!r}\n" for name, value in settings.items()))
        program = Path(sys.executable).with_name("sushy-emulator")
        arguments = ["--fake", "--port", str(self._port), "--interface", "127.0.0.1", "--config", str(config)]
        log = (folder / "sushy.log").open("wb")
        self._process = subprocess.Popen([program, *arguments], stdout=log, stderr=log)
        log.close()
        eventually(lambda: self.power() or None, 60)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        powers = self.powers

        class Handler(BaseHTTPRequestHandler):
            def do_PUT(self) -> None:
                import json

                powers.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["power_state"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def power(self) -> str:
        """Return the machine's power; the emulator carries out what is pending only when it is asked."""
        path = f"{self.url}/redfish/v1/Systems/{SYSTEM[:-1]}0"
        try:
            answer = httpx.get(path, auth=self.auth, trust_env=False)
        except httpx.TransportError:
            return ""
        return str(answer.json().get("PowerState", "")) if answer.is_success else ""

    def bmc(self, **change: Any) -> dict[str, Any]:
        password = str(self.folder / "password")
        return {"endpoint": {"url": self.url, "username": USER, "password_file": password, **change}}

    def end(self) -> None:
        self._process.terminate()
        self._process.wait(10)
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    started = Emulator(tmp_path)
    yield started
    started.end()


LADDER = [{"repair": "gpu-reset", "within": "10s"}, {"repair": "power-cycle", "within": "20s"}]


@pytest.mark.slow
def test_a_power_cycle_is_done_when_the_node_is_back_under_another_boot(
    ward: Ward, agents: Agents, emulator: Emulator
) -> None:
    ward.quarantine()
    ward.open()
    agents.answers["remediate"] = "the GPU does not answer"
    ended = threading.Event()

    def machine() -> None:
        while not ended.wait(0.1):
            emulator.power()
            if emulator.powers[-1:] == ["On"]:
                boot(ward.world, ward.node, "boot-after-power-cycle")
                return

    thread = threading.Thread(target=machine)
    thread.start()
    episode = ward.work_off(ladder=LADDER, bmc=emulator.bmc())
    ended.set()
    thread.join()
    assert episode.state is State.RETURNED, episode.why
    assert [attempt.repair for attempt in episode.attempts] == ["gpu-reset", "power-cycle"]
    assert emulator.powers[-1] == "On" and episode.qa[-1].boot == "boot-after-power-cycle"


@pytest.mark.slow
def test_a_bmc_that_says_yes_and_does_nothing_is_a_failed_attempt(
    ward: Ward, agents: Agents, emulator: Emulator
) -> None:
    ward.quarantine()
    ward.open()
    ladder = [{"repair": "power-cycle", "limit": 2, "within": "2s"}]
    episode = ward.work_off(ladder=ladder, bmc=emulator.bmc())
    assert episode.state is State.HANDED_OVER and ward.taint_keys() == [OURS["key"]]
    assert [attempt.why for attempt in episode.attempts] == ["no new boot id within 2 s"] * 2


@pytest.mark.slow
def test_a_bmc_that_refuses_is_named_without_its_password(emulator: Emulator, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("wrong-password")
    with pytest.raises(AdapterError, match=r"127.0.0.1.*401") as raised:
        power_cycle(Bmc.model_validate(emulator.bmc()), "n1")
    assert "wrong-password" not in str(raised.value)


def test_a_bmc_of_nobody_is_an_error_and_the_url_names_the_node() -> None:
    (port,) = free_ports(1)
    bmc = Bmc.model_validate({"endpoint": {"url": f"http://127.0.0.1:{port}/{{node}}"}})
    assert bmc.endpoint_of("n1").url.endswith("/n1")
    with pytest.raises(AdapterError):
        power_cycle(bmc, "n1")


@pytest.fixture
def hostile() -> Iterator[str]:
    """A BMC whose system has its action on another server."""
    target = {"target": "http://elsewhere.example/take-my-password"}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            import json

            body = json.dumps({"PowerState": "On", "Actions": {"#ComputerSystem.Reset": target}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_no_bmc_sends_our_credentials_to_another_server(hostile: str) -> None:
    bmc = Bmc.model_validate({"endpoint": {"url": hostile}, "system": "/redfish/v1/Systems/1"})
    with pytest.raises(AdapterError, match="target"):
        power_cycle(bmc, "n1")


def test_a_power_cycle_without_a_bmc_is_refused() -> None:
    from gameday_health.episodes.policy import RepairPolicy

    with pytest.raises(ValueError, match="needs bmc"):
        RepairPolicy.model_validate({"ladder": [{"repair": "power-cycle"}]})
