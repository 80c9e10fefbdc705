"""A pod's folder on the machine that plays its node: volumes, termination messages, logs.

A container's paths mean nothing outside a container. So every argument, environment value and probe path that begins
with the mount path of an emptyDir, of the downward API or of the API account is rewritten to that volume's folder in
here. A volume of the downward API has the pod's labels and annotations. It is updated as soon as they change; a
kubelet takes up to a minute.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

from gameday.errors import PodConfigError
from gameday_rehearsal.nodes.api_account import token_volume
from kubesim.client import Object

TERMINATION_MESSAGE_BYTES = 4096  # kubecontainer.MaxContainerTerminationMessageLength
_FALLBACK_BYTES, _FALLBACK_LINES = 2048, 80  # MaxContainerTerminationMessageLogLength, …LogLines
# Variables that could make the container's own process load foreign code; an image would confine it, we cannot.
_WITHHELD = ("LD_", "PYTHON")
_METADATA = re.compile(r"metadata\.(?P<kind>labels|annotations)\['(?P<key>[^']+)'\]")


class Sandbox:
    def __init__(self, folder: Path, pod: Object) -> None:
        """Creates the pod's folder. Raises OSError."""
        self.root: Path = folder / pod["metadata"]["uid"]
        self._pod = pod
        self._volumes = {v["name"] for v in pod["spec"].get("volumes") or () if "emptyDir" in v}
        if account := token_volume(pod):
            self._volumes.add(account["name"])
        self._projected = [v for v in pod["spec"].get("volumes") or () if "downwardAPI" in v]
        self._volumes |= {volume["name"] for volume in self._projected}
        self._written: dict[Path, str] = {}
        for volume in self._volumes:
            self.volume(volume).mkdir(parents=True, exist_ok=True)
        self.root.mkdir(parents=True, exist_ok=True)
        self.project(pod)

    def project(self, pod: Object) -> bool:
        """Write the pod's labels and annotations into its volumes; return True if a file changed. Raises OSError.

        A reader sees the old file or the new one.
        """
        changed = False
        for volume in self._projected:
            for item in volume["downwardAPI"].get("items") or ():
                file = self.holds(str(self.volume(volume["name"]) / item["path"]))
                text = _metadata((item.get("fieldRef") or {}).get("fieldPath", ""), pod["metadata"])
                if file is None or text is None or self._written.get(file) == text:
                    continue
                file.parent.mkdir(parents=True, exist_ok=True)
                beside = file.with_name(f"..{file.name}")
                beside.write_text(text, encoding="utf-8")
                beside.replace(file)
                self._written[file], changed = text, True
        return changed

    def volume(self, name: str) -> Path:
        """Return a volume's folder."""
        return self.root / "volumes" / name

    def rewritten(self, container: Object, text: str) -> str:
        """Return `text` with a leading mount path (the longest that fits) replaced by the volume's folder."""
        mounts = [m for m in container.get("volumeMounts") or () if m["name"] in self._volumes]
        for mount in sorted(mounts, key=lambda m: len(m["mountPath"]), reverse=True):
            base = mount["mountPath"].rstrip("/")
            if text == base or text.startswith(f"{base}/"):
                return f"{self.volume(mount['name'])}{text.removeprefix(base)}"
        return text

    def holds(self, path: str) -> Path | None:
        """Return the path if it is in this sandbox once every link and `..` is followed."""
        found = Path(path).resolve()
        return found if found.is_relative_to(self.root.resolve()) else None

    def environment(self, container: Object, own: dict[str, str]) -> dict[str, str]:
        """Return the container's environment, with ours on top. Raises PodConfigError for what needs a real cluster."""
        variables = {}
        for variable in container.get("env") or ():
            name = variable["name"]
            if not name.startswith(_WITHHELD):
                variables[name] = self.rewritten(container, self._value(container, variable))
        return {**variables, "PATH": os.environ.get("PATH", os.defpath), **own}

    def _value(self, container: Object, variable: Object) -> str:
        source = variable.get("valueFrom")
        if not source:
            return str(variable.get("value") or "")
        path = (source.get("fieldRef") or {}).get("fieldPath")
        meta, spec = self._pod["metadata"], self._pod["spec"]
        fields: dict[str | None, Any] = {
            "metadata.name": meta["name"],
            "metadata.namespace": meta["namespace"],
            "metadata.uid": meta["uid"],
            "spec.nodeName": spec["nodeName"],
            "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
            "status.hostIP": "127.0.0.1",
        }
        if path not in fields:
            raise PodConfigError(
                f"container {container['name']}, variable {variable['name']}: a virtual node resolves only "
                f"fieldRef {', '.join(sorted(map(str, fields)))}"
            )
        return str(fields[path])

    def termination_log(self, container: Object, restarts: int) -> Path:
        return self.root / f"{container['name']}-{restarts}.termination"

    def log_file(self, container: Object, restarts: int) -> Path:
        return self.root / f"{container['name']}-{restarts}.log"

    def termination_message(self, container: Object, restarts: int, *, failed: bool) -> str:
        """Return the termination file's text, else the end of a failed container's log if its policy asks for it."""
        message = _tail(self.termination_log(container, restarts), TERMINATION_MESSAGE_BYTES, from_start=True)
        if message or not failed or container.get("terminationMessagePolicy") != "FallbackToLogsOnError":
            return message
        tail = _tail(self.log_file(container, restarts), _FALLBACK_BYTES, from_start=False)
        return "".join(tail.splitlines(keepends=True)[-_FALLBACK_LINES:])

    def remove(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


def _metadata(path: str, meta: Object) -> str | None:
    """Return the value of a field path like `metadata.annotations['key']`; empty if it is not set, None for others."""
    found = _METADATA.fullmatch(path)
    return str((meta.get(found["kind"]) or {}).get(found["key"]) or "") if found else None


def _tail(path: Path, most: int, *, from_start: bool) -> str:
    try:
        with path.open("rb") as file:
            if not from_start:
                file.seek(max(0, path.stat().st_size - most))
            return file.read(most).decode("utf-8", "replace")
    except OSError:
        return ""
