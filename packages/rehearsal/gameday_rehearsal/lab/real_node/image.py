"""Images without a registry: a tar in OCI's layout, as `ctr images import` and every builder reads it.

https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md; containerd takes the name from an annotation.
"""

from __future__ import annotations

import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

BUSYBOX = "localhost/gameday/busybox:lab"
"""The image of BusyBox alone: the lab's sandbox image, and one to try pods with; its shell waits until it is ended."""

_TYPE = "application/vnd.oci.image"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_WAITS = ("/bin/sh", "-c", "trap exit TERM INT; sleep infinity & wait")
_APPLETS = (
    *("sh", "cat", "echo", "grep", "head", "hostname", "httpd", "id", "ls"),
    *("nc", "nsenter", "nslookup", "ps", "sleep", "stat", "touch", "wget"),
)


def write_busybox(busybox: Path, archive: Path) -> None:
    """Write the image BUSYBOX; `busybox` is a static program. Raises OSError."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for folder in ("bin", "etc", "tmp"):
            tar.addfile(_entry(folder, tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755))
        program = busybox.read_bytes()
        entry = _entry("bin/busybox", tarfile.REGTYPE, 0o755)
        entry.size = len(program)
        tar.addfile(entry, io.BytesIO(program))
        for applet in _APPLETS:
            link = _entry(f"bin/{applet}", tarfile.SYMTYPE, 0o777)
            link.linkname = "busybox"
            tar.addfile(link)
    write_image(archive, BUSYBOX, layer.getvalue(), _WAITS)


def write_image(archive: Path, name: str, layer: bytes, command: Sequence[str]) -> None:
    """Write an image of one layer. Raises OSError.

    Args:
        archive: The file.
        name: The image's full name, with a tag.
        layer: A tar, not compressed.
        command: The words that it runs unless a pod says otherwise.
    """
    machine = platform.machine()
    config = {
        "architecture": _ARCHITECTURES.get(machine, machine),
        "os": "linux",
        "config": {"Cmd": list(command), "Env": ["PATH=/bin:/usr/bin:/sbin:/usr/sbin"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    blobs = [layer, json.dumps(config).encode()]
    described_layer, described_config = _described("layer.v1.tar", blobs[0]), _described("config.v1+json", blobs[1])
    manifest = {"schemaVersion": 2, "config": described_config, "layers": [described_layer]}
    blobs.append(json.dumps(manifest | {"mediaType": f"{_TYPE}.manifest.v1+json"}).encode())
    named = _described("manifest.v1+json", blobs[2]) | {"annotations": {"io.containerd.image.name": name}}
    files = {
        "oci-layout": b'{"imageLayoutVersion": "1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(),
        **{f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}": blob for blob in blobs},
    }
    with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as tar:
        for path, content in files.items():
            entry = _entry(path, tarfile.REGTYPE, 0o644)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))


def _described(kind: str, blob: bytes) -> dict[str, Any]:
    return {"mediaType": f"{_TYPE}.{kind}", "digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def _entry(name: str, kind: bytes, mode: int) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, mode
    return entry
