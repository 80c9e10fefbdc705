"""An API server of another release in a running lab, and the way back; it needs `make lab-release VERSION=1.32`."""

from __future__ import annotations

from pathlib import Path

import pytest

from gameday.cluster.lab_control import SOCKET, configure_lab
from gameday.errors import ControlError
from gameday_rehearsal.lab.settings import LabSettings
from tests.rehearsal.lab.plane import running


@pytest.mark.lab
@pytest.mark.timeout(240)
def test_a_lab_of_another_release_works_and_goes_back_to_its_own(tmp_path: Path) -> None:
    with running(tmp_path / "lab", LabSettings(api_server_release="1.32")) as plane:
        own = plane.components()["kube-scheduler"]["version"]
        assert plane.components()["kube-apiserver"]["version"].startswith("v1.32.")
        plane.kubectl("create", "configmap", "kept")
        with pytest.raises(ControlError, match=r"make lab-release VERSION=1\.31"):
            configure_lab(plane.folder / SOCKET, {"api_server_release": "1.31"})
        assert plane.kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"
        configure_lab(plane.folder / SOCKET, {"api_server_release": None})
        assert plane.components()["kube-apiserver"]["version"] == own
        assert plane.kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"
