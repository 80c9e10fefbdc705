"""deploy/prefect/kubernetes: the real worker of prefect-kubernetes makes Jobs of flow runs, before a real API server.

No image can be run here. So the test plays the kubelet: it runs the very command and environment of the Job's container
as a process, and sets the pod's status as a kubelet does. Everything else is real: worker, rights, template, the Job's
controller, Prefect's server and the game-day.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from kubernetes import client
from ruamel.yaml import YAML

from gameday.exit_codes import ExitCode
from gameday.history.events import Aborted, FaultInjected, RunEnded
from gameday.history.journal import History, read_history
from gameday.processes.children import Child
from gameday.report.run_folder import load_run_folder
from gameday.values.results import Cleanliness
from gameday_rehearsal.programs import TOOLS
from gameday_rehearsal.seed import seeding
from kubesim.kubeconfig import Kubeconfig
from tests.deploy.manifests import DEPLOY, documents
from tests.game_days.conftest import QUICK, Arena, changed
from tests.rehearsal.lab.test_rights import FORBIDDEN
from tests.rehearsal.processes import until
from tests.support.prefect_api import prefect_api

pytestmark = [pytest.mark.lab, pytest.mark.gameday, pytest.mark.timeout(600)]
FOLDER = DEPLOY / "prefect" / "kubernetes"
PACKAGES = TOOLS / "prefect-kubernetes"
ACCOUNT = "gameday-kubernetes-worker"
API_KEY = "a-key-that-must-not-be-seen"
_PREFECT = (sys.executable, "-m", "prefect")
_OURS = Path(sys.executable).parent


class JobWorker:
    """The worker of deploy/prefect/kubernetes under its account, its pool, and the deployments."""

    def __init__(self, arena: Arena, folder: Path) -> None:
        self.arena = arena
        self.folder = folder
        self.batch = client.BatchV1Api(arena.core.api_client)
        self.api = prefect_api(arena.cluster.prefect_client)
        self._grant()
        self._environment = self._environment_of_the_manifest()
        template = ("--base-job-template", str(FOLDER / "job-template.json"))
        self._run([*_PREFECT, "--no-prompt", "work-pool", "create", "gameday", "--type", "kubernetes", *template])
        (folder / "plans").mkdir()
        for name in ("passes", "cancelled"):
            plan = changed(changed(QUICK, "name", name), "expect.workloads.running_pods", "any")
            YAML(typ="safe", pure=True).dump(plan, folder / f"plans/{name}.yaml")
        arguments = ("--profile", str(arena.cluster.profile), "--plans", "plans", "--reports", "reports")
        self._run([sys.executable, "-m", "gameday.cli", "deploy", *arguments])
        (manifest,) = (one for one in documents(FOLDER / "worker.yaml") if one["kind"] == "Deployment")
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        argv = [sys.executable, "-m", *(word for word in container["command"] if word != "--with-healthcheck")]
        self.child = Child("worker", argv, folder / "worker.log", self._environment, says_ready=False)

    def _grant(self) -> None:
        """Apply what deploy/prefect/kubernetes and the Jobs need, and write the account's kubeconfig."""
        manifests = [*documents(FOLDER / "rights.yaml"), _secret(self.arena.cluster.prefect_password), _settings()]
        for manifest in manifests:
            (self.folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
            self._run(
                ["kubectl", "--kubeconfig", str(self.arena.cluster.admin_kubeconfig), "apply", "-f", "manifest.json"]
            )
        with seeding(self.arena.cluster.admin_kubeconfig) as seeder:
            self.kubeconfig = seeder.service_account_kubeconfig(ACCOUNT, self.folder / "worker.kubeconfig")

    def _environment_of_the_manifest(self) -> dict[str, str]:
        (manifest,) = (one for one in documents(FOLDER / "worker.yaml") if one["kind"] == "Deployment")
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        found = {one["name"]: one.get("value", "gameday") for one in container["env"]}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
        return {
            **inherited,
            **found,
            # As docs/prefect.md has it for Prefect Cloud.
            "PREFECT_API_KEY": API_KEY,
            "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_KEY_SECRET_NAME": "gameday-prefect",
            "PREFECT_INTEGRATIONS_KUBERNETES_WORKER_API_KEY_SECRET_KEY": "key",
            **self.arena.cluster.prefect_client,
            "PREFECT_HOME": str(self.folder / "home"),
            "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
            "PREFECT_WORKER_QUERY_SECONDS": "1",
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(PACKAGES),
        }

    def _run(self, argv: list[str]) -> None:
        environment = getattr(self, "_environment", dict(os.environ))
        done = subprocess.run(argv, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def begin(self, plan: str) -> str:
        found = self.api.get("/deployments/name/game-day/game-day (breaks one GPU)").raise_for_status().json()["id"]
        parameters = {"plan": str(self.folder / f"plans/{plan}.yaml"), "approved_by": "ada"}
        begun = self.api.post(f"/deployments/{found}/create_flow_run", json={"parameters": parameters})
        return str(begun.raise_for_status().json()["id"])

    def job(self, run: str) -> Any:
        """Wait for the Job of a flow run, and return it."""
        jobs: list[Any] = []

        def is_there() -> bool:
            jobs[:] = self.batch.list_namespaced_job("gameday", label_selector=f"prefect.io/flow-run-id={run}").items
            return bool(jobs)

        until(is_there, 60, f"the worker makes a Job:\n{self.child.log.read_text(encoding='utf-8')[-3000:]}")
        return jobs[0]

    def pod(self, job: Any) -> Any:
        """Wait for the pod that the Job's controller makes, and return it."""
        pods: list[Any] = []

        def is_there() -> bool:
            selector = f"batch.kubernetes.io/job-name={job.metadata.name}"
            pods[:] = self.arena.core.list_namespaced_pod("gameday", label_selector=selector).items
            return bool(pods)

        until(is_there, 60, "the Job's controller makes its pod")
        return pods[0]

    def state(self, run: str) -> str:
        return str(self.api.get(f"/flow_runs/{run}").raise_for_status().json()["state_name"])

    def run_folder(self, plan: str) -> Path | None:
        found = (self.folder / "reports").glob("*/history.jsonl")
        return next((path.parent for path in found if f'"{plan}"' in path.read_text(encoding="utf-8")), None)

    def history(self, plan: str) -> History:
        """Return what the plan's run has written so far; an empty one before it begins."""
        folder = self.run_folder(plan)
        return read_history(folder / "history.jsonl") if folder else History(())


class PlayedKubelet:
    """Runs a pod's container as a process, and reports what became of it in the pod's status."""

    def __init__(self, worker: JobWorker, pod: Any) -> None:
        self._core = worker.arena.core
        self._pod = pod
        (container,) = pod.spec.containers
        environment = {one.name: one.value or self._secret_value(one) for one in container.env}
        for source in container.env_from:
            environment |= self._core.read_namespaced_config_map(source.config_map_ref.name, "gameday").data
        # What the image and its volumes bring.
        environment |= {"PATH": f"{_OURS}:{os.environ['PATH']}", "HOME": str(worker.folder)}
        environment["PREFECT_HOME"] = str(worker.folder / pod.metadata.name)
        self.environment = environment
        self.log = worker.folder / f"{pod.metadata.name}.txt"
        with self.log.open("w") as log:
            argv = [*container.command, *container.args]
            self.process = subprocess.Popen(argv, cwd=worker.folder, env=environment, stdout=log, stderr=log)
        self._report("Running", {"running": {"startedAt": _now()}})

    def end(self) -> None:
        """Wait for the container's end, and report it."""
        code = self.process.wait(200)
        state = {
            "terminated": {"exitCode": code, "finishedAt": _now(), "reason": "Completed" if code == 0 else "Error"}
        }
        self._report("Failed" if code else "Succeeded", state)

    def _secret_value(self, variable: Any) -> str:
        reference = variable.value_from.secret_key_ref
        held = self._core.read_namespaced_secret(reference.name, "gameday").data
        return base64.b64decode(held[reference.key]).decode()

    def _report(self, phase: str, state: dict[str, Any]) -> None:
        status = {"name": "prefect-job", "ready": phase == "Running", "restartCount": 0, "image": "i", "imageID": "i"}
        body = {"status": {"phase": phase, "containerStatuses": [{**status, "state": state}]}}
        self._core.patch_namespaced_pod_status(self._pod.metadata.name, "gameday", body)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _secret(password: str) -> dict[str, Any]:
    metadata = {"name": "gameday-prefect", "namespace": "gameday"}
    held = {"auth": password, "key": API_KEY}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": held}


def _settings() -> dict[str, Any]:
    """A cluster's settings without addresses, which the profile of the arena has."""
    metadata = {"name": "gameday-cluster", "namespace": "gameday"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"GAMEDAY_NAME": "from-the-map"}}


@pytest.fixture
def worker(clean_arena: Arena, tmp_path: Path) -> Iterator[JobWorker]:
    if not (PACKAGES / "prefect_kubernetes").is_dir():
        pytest.skip("prefect-kubernetes is not there; `python3 scripts/setup.py prefect-kubernetes` fetches it")
    started = JobWorker(clean_arena, tmp_path)
    started.child.start()
    try:
        yield started
    finally:
        started.child.end()
        for job in started.batch.list_namespaced_job("gameday", label_selector="gameday.dev/flow-run=true").items:
            started.batch.delete_namespaced_job(job.metadata.name, "gameday", propagation_policy="Background")
        until(lambda: not clean_arena.core.list_namespaced_pod("gameday").items, 60, "the Jobs' pods are gone")
        clean_arena.core.delete_namespaced_secret("gameday-prefect", "gameday")
        clean_arena.core.delete_namespaced_config_map("gameday-cluster", "gameday")
        started.api.close()


def test_a_flow_run_is_a_job_that_passes_and_one_that_is_cancelled_is_undone(worker: JobWorker) -> None:
    run = worker.begin("passes")
    job = worker.job(run)
    pod = worker.pod(job)
    taken = json.dumps(worker.arena.core.api_client.sanitize_for_serialization([job, pod]))
    password = worker.arena.cluster.prefect_password
    for secret in (password, API_KEY):
        assert secret not in taken
        assert base64.b64encode(secret.encode()).decode() not in taken
    has_the_templates_limits(job, pod, run)

    kubelet = PlayedKubelet(worker, pod)
    given = (kubelet.environment["PREFECT_API_AUTH_STRING"], kubelet.environment["PREFECT_API_KEY"])
    assert given == (password, API_KEY)
    kubelet.end()
    assert worker.state(run) == "Completed", kubelet.log.read_text()
    assert [one.cleanliness for one in worker.history("passes").of(RunEnded)] == [Cleanliness.CLEAN]
    until(lambda: worker.batch.read_namespaced_job(job.metadata.name, "gameday").status.succeeded, 60, "the Job ends")
    until(lambda: "prefect.kubernetes.pod.succeeded" in events(worker, run), 60, "the worker has seen the pod's end")
    assert worker.state(run) == "Completed"

    run = worker.begin("cancelled")
    kubelet = PlayedKubelet(worker, worker.pod(worker.job(run)))
    until(lambda: worker.history("cancelled").of(FaultInjected), 120, "the fault is in")
    worker.api.post(f"/flow_runs/{run}/set_state", json={"state": {"type": "CANCELLING"}}).raise_for_status()
    kubelet.end()
    history, folder = worker.history("cancelled"), worker.run_folder("cancelled")
    assert folder is not None
    assert history.of(Aborted), kubelet.log.read_text()
    assert [one.cleanliness for one in history.of(RunEnded)] == [Cleanliness.CLEAN]
    assert load_run_folder(folder).result.exit_code == ExitCode.ABORTED
    assert worker.state(run) == "Cancelled", kubelet.log.read_text()
    is_refused_what_nobody_may(worker)
    said = worker.child.log.read_text(encoding="utf-8")
    assert not re.findall(r"[Ff]orbidden|is not recommended|Traceback", said), said


def has_the_templates_limits(job: Any, pod: Any, run: str) -> None:
    assert job.spec.backoff_limit == 0
    assert job.spec.active_deadline_seconds == 43200
    assert job.spec.ttl_seconds_after_finished == 86400
    assert pod.spec.service_account_name == "gameday-runner"
    assert pod.spec.security_context.run_as_non_root
    (container,) = pod.spec.containers
    assert container.security_context.capabilities.drop == ["ALL"]
    assert container.security_context.read_only_root_filesystem
    assert container.resources.limits["memory"] == "4Gi"
    assert pod.metadata.labels["gameday.dev/flow-run"] == "true"
    assert pod.metadata.labels["prefect.io/flow-run-id"] == run
    environment = {one.name: one.value for one in container.env}
    assert environment["PREFECT_FLOW_RUN_EXECUTE_SIGTERM_BEHAVIOR"] == "relinquish"
    assert environment["PREFECT_API_AUTH_STRING"] is None


def is_refused_what_nobody_may(worker: JobWorker) -> None:
    account = Kubeconfig.load(worker.kubeconfig)
    headers = {"Authorization": f"Bearer {account.token}"}
    with httpx.Client(base_url=account.server, headers=headers, verify=account.tls or True) as api:
        answers = {path: api.request(method, path, json=body).status_code for method, path, body in FORBIDDEN}
    assert set(answers.values()) == {403}, answers


def events(worker: JobWorker, run: str) -> set[str]:
    body = {"filter": {"related": {"id": [f"prefect.flow-run.{run}"]}}}
    found = worker.api.post("/events/filter", json=body).raise_for_status().json()["events"]
    return {str(event["event"]) for event in found}
