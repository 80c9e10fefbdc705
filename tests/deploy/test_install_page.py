"""The image's recipe and docs/install.md: what they name is there, and the kustomization a reader copies builds."""

from __future__ import annotations

import json
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from ruamel.yaml import YAML

from gameday_health.episodes.node import HOLD_OUT, RELEASED_FOR, REPAIR_ANNOTATION, STATE_LABEL
from gameday_health.model import REASON
from gameday_rehearsal.programs import search
from tests.cli.accepted import accept
from tests.deploy.manifests import ROOT

PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
KUBECTL = search("kubectl")


def _sources() -> set[str]:
    """What the Dockerfile copies out of the repository."""
    lines = re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE)
    return {name for line in lines for name in line.split()[:-1]}


def _commands() -> list[str]:
    """Each command that the build runs."""
    text = re.sub(r"^ *#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", "")
    return [one for run in re.findall(r"^RUN (.+)$", text, re.MULTILINE) for one in run.split("&&")]


def _pins(lock: str) -> dict[str, str]:
    text = (ROOT / lock).read_text(encoding="utf-8")
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", text, re.MULTILINE))


@pytest.fixture
def built(tmp_path: Path) -> list[dict[str, Any]]:
    """The page's kustomization, with its patch and its component for more, beside a checkout as the page has it."""
    if KUBECTL is None:
        pytest.skip("kubectl is not there; `make setup` fetches it")
    (written,) = re.findall(r"```yaml\n(# kustomization\.yaml\n.*?)```", PAGE, re.DOTALL)
    written += "".join(re.findall(r"```yaml\n(  - target: .*?)```", PAGE, re.DOTALL))
    written += "".join(re.findall(r"```yaml\n(components:.*?)```", PAGE, re.DOTALL))
    (tmp_path / "gpu-gameday").symlink_to(ROOT)
    (tmp_path / "kustomization.yaml").write_text(written, encoding="utf-8")
    done = subprocess.run([KUBECTL, "kustomize", tmp_path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(YAML(typ="safe", pure=True).load_all(done.stdout))


def test_the_image_is_given_whatever_goes_into_the_wheel() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert {*wheel["packages"], *wheel["force-include"], PROJECT["project"]["readme"], "pyproject.toml"} <= _sources()


def test_the_builder_is_sent_what_the_image_copies_and_nothing_else() -> None:
    first, *rest = [
        line for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines() if not line.startswith("#")
    ]
    assert first == "*"
    assert {line.removeprefix("!") for line in rest if line.startswith("!")} == _sources()
    assert all((ROOT / name).exists() for name in _sources())


def test_every_package_of_the_image_is_checked_against_its_hash() -> None:
    fetching = [one for one in _commands() if re.search(r"pip (--python \S+ )?(download|install|wheel)", one)]
    assert len(fetching) == 7
    assert [one for one in fetching if "--require-hashes" not in one and "--no-index" not in one] == []


def test_a_debian_with_python_and_venv_is_base_enough() -> None:
    """Neither `pip` nor `python` is on PATH there, only what the image has installed itself."""
    programs = {one.split()[0] for one in _commands()}
    own = {"/build/bin/pip", "/cc/bin/pip", "/cc/bin/python"}
    assert own < programs
    essential = {"cat", "find", "groupadd", "ln", "nsenter", "rm", "useradd"}
    assert programs - own - essential == {"python3"}


def test_the_image_starts_the_agent_from_its_arguments_alone() -> None:
    assert re.search(r'^ENTRYPOINT \["python"\]$', DOCKERFILE, re.MULTILINE)


def test_the_build_without_a_target_is_the_lean_one() -> None:
    assert re.findall(r"^FROM .* AS (\S+)$", DOCKERFILE, re.MULTILINE)[-1] == "lean"


def test_the_gpu_extra_is_what_its_lock_locks() -> None:
    extra = PROJECT["project"]["optional-dependencies"]["gpu"]
    assert PROJECT["dependency-groups"]["gpu"] == extra
    pins = _pins("requirements-gpu.lock")
    for one in map(Requirement, extra):
        assert one.specifier.contains(pins[one.name])


def test_both_locks_agree_where_they_meet() -> None:
    lean, gpu = _pins("requirements.lock"), _pins("requirements-gpu.lock")
    both = gpu.keys() & lean.keys()
    assert "numpy" in both
    assert {name: gpu[name] for name in both} == {name: lean[name] for name in both}


def test_the_kubernetes_workers_lock_goes_on_top_of_the_images() -> None:
    lean, more = _pins("requirements.lock"), _pins("requirements-prefect-kubernetes.lock")
    # tenacity is in requirements.lock for a tool of the tests alone, so the image has it from nowhere else.
    assert lean.keys() & more.keys() == {"tenacity"}
    assert more["tenacity"] == lean["tenacity"]


def test_the_pages_kustomization_changes_every_image(built: list[dict[str, Any]]) -> None:
    images = set(re.findall(r'"image": "([^"]+)"', json.dumps(built)))
    assert images == {"REGISTRY/gameday:0.1.0", "docker.io/library/debian:12-slim"}


LINES = [line.strip().partition(" #")[0].strip() for line in PAGE.splitlines() if line.startswith("    ")]


@pytest.mark.parametrize("line", [line for line in LINES if re.match(r"(in-worker )?gameday ", line)])
def test_the_command_line_takes_what_the_page_shows(line: str) -> None:
    assert accept(line.removeprefix("in-worker "))


def test_each_kustomization_that_the_page_takes_out_is_there() -> None:
    named = {path for line in LINES for path in re.findall(r"-k gpu-gameday/(\S+)", line)}
    assert len(named) >= 3
    assert [path for path in sorted(named) if not (ROOT / path / "kustomization.yaml").is_file()] == []


def test_everything_that_we_write_on_nodes_is_taken_off_again() -> None:
    removed = {name for line in LINES for name in re.findall(r"(gameday\.dev/[a-z-]+?)-(?= |$)", line)}
    assert {STATE_LABEL, HOLD_OUT, RELEASED_FOR, REPAIR_ANNOTATION, REASON, "gameday.dev/opt-in"} <= removed
