"""Which programs the lab runs, from what the candidates say their versions are. No program of Kubernetes is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gameday.errors import ProgramMissingError
from gameday_rehearsal.lab.programs import MODULES, find_api_server, find_module, find_programs, users_folders

Put = Callable[..., Path]
_KUBERNETES = MODULES["kubernetes"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`path`, `assets` and `tools/bin` in it are searched, in this order."""
    for name in ("path", "assets", "tools/bin"):
        (tmp_path / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path / "assets"))
    monkeypatch.setattr("gameday_rehearsal.lab.programs.TOOLS", tmp_path / "tools")
    return tmp_path


@pytest.fixture
def put(folders: Path) -> Put:
    def put(folder: str, name: str, said: str, status: int = 0) -> Path:
        path = folders / folder / name
        path.write_text(f"#!/bin/sh\necho '{said}'\nexit {status}\n")
        path.chmod(0o755)
        return path

    return put


def _put_all(put: Put, folder: str, kubernetes: str, etcd: str) -> None:
    put(folder, "etcd", f"etcd Version: {etcd}")
    for name in _KUBERNETES:
        put(folder, name, f"Kubernetes v{kubernetes}")


def _found_in(folders: Path) -> dict[str, str]:
    return {name: str(program.path.parent.relative_to(folders)) for name, program in find_programs().items()}


@pytest.mark.parametrize(
    ("said", "release"),
    [
        ("Kubernetes v1.37.1", "v1.37.1"),
        ("Kubernetes v1.38.0-beta.1+k3s1", "v1.38.0-beta.1+k3s1"),
    ],
)
def test_versions_are_read_as_the_programs_say_them(put: Put, folders: Path, said: str, release: str) -> None:
    for name in _KUBERNETES:
        put("path", name, said)
    assert find_module("kubernetes", users_folders())["kube-scheduler"].release == release


def test_the_users_own_come_before_ours_and_path_before_assets(put: Put, folders: Path) -> None:
    for folder in ("tools/bin", "assets", "path"):
        _put_all(put, folder, "1.37.1", "3.6.16")
    assert set(_found_in(folders).values()) == {"path"}
    for name in ("etcd", *_KUBERNETES):
        (folders / "path" / name).unlink()
    assert set(_found_in(folders).values()) == {"assets"}


def test_one_that_is_too_old_is_passed_over(put: Put, folders: Path) -> None:
    _put_all(put, "path", "1.34.9", "3.5.21")
    _put_all(put, "tools/bin", "1.35.0", "3.6.0")
    assert set(_found_in(folders).values()) == {"tools/bin"}


def test_one_that_fits_is_found_behind_one_that_does_not(
    put: Put, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folders / "later").mkdir()
    monkeypatch.setenv("PATH", f"{folders / 'path'}:{folders / 'later'}")
    _put_all(put, "path", "1.30.0", "3.4.23")
    _put_all(put, "later", "1.37.1", "3.6.16")
    assert set(_found_in(folders).values()) == {"later"}


@pytest.mark.parametrize(("scheduler", "fits"), [("1.36.4", True), ("1.37.9", True), ("1.35.7", False)])
def test_a_scheduler_may_be_one_release_older_than_its_apiserver(
    put: Put, folders: Path, scheduler: str, fits: bool
) -> None:
    _put_all(put, "path", "1.37.1", "3.6.16")
    put("path", "kube-scheduler", f"Kubernetes v{scheduler}")
    if fits:
        assert find_programs()["kube-scheduler"].release == f"v{scheduler}"
    else:
        with pytest.raises(ProgramMissingError, match=r"kube-scheduler \(v1\.35\.7\) does not go with .*v1\.37\.1"):
            find_programs()


def test_an_apiserver_without_its_companions_gives_way_to_a_whole_set(put: Put, folders: Path) -> None:
    put("path", "kube-apiserver", "Kubernetes v1.36.4")
    _put_all(put, "tools/bin", "1.37.1", "3.6.16")
    assert set(_found_in(folders).values()) == {"tools/bin"}


@pytest.mark.parametrize(("said", "status"), [("usage: etcd [flags]", 2), ("", 0)])
def test_one_that_does_not_say_its_version_is_passed_over_and_named(
    put: Put, folders: Path, said: str, status: int
) -> None:
    odd = put("path", "etcd", said, status)
    with pytest.raises(ProgramMissingError) as missing:
        find_programs()
    assert f"{odd} does not say its version" in str(missing.value)
    assert "run `make lab`" in str(missing.value)


def test_what_is_not_executable_is_no_program(put: Put, folders: Path) -> None:
    put("path", "etcd", "etcd Version: 3.6.16").chmod(0o644)
    with pytest.raises(ProgramMissingError, match="the lab needs etcd"):
        find_programs()


def test_our_tool_folder_on_path_is_not_the_users_own(put: Put, folders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put("tools/bin", "etcd", "etcd Version: 3.6.16")
    monkeypatch.setenv("PATH", str(folders / "tools" / "bin"))
    with pytest.raises(ProgramMissingError):
        find_module("etcd", users_folders())
    assert find_module("etcd", [folders / "tools" / "bin"])["etcd"].release == "v3.6.16"


@pytest.mark.parametrize("said", [None, "Kubernetes v1.33.2", "Kubernetes v1.3.2", "usage"])
def test_an_api_server_of_another_release_is_found_by_its_name_and_its_word(
    put: Put, folders: Path, said: str | None
) -> None:
    if said:
        put("path", "kube-apiserver-1.32", said)
    with pytest.raises(ProgramMissingError, match=r"run `make lab-release VERSION=1\.32`"):
        find_api_server("1.32")
    put("tools/bin", "kube-apiserver-1.32", "Kubernetes v1.32.13")
    assert find_api_server("1.32").release == "v1.32.13"
