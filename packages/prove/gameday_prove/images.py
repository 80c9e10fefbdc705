"""Images with a shell that GPU nodes often have already, so that nothing has to be pulled."""

from __future__ import annotations

from collections.abc import Sequence

from gameday_prove.recognise import holds_image

SMALL = "docker.io/library/busybox:1.37"
"""The image to pull if the node has none of these: 2 MB, and its sh, cat and sleep are all that is used."""
_WITH_SHELL = (
    "busybox",
    "alpine",
    "node-exporter",
    "node-problem-detector",
    "nvidia/cuda",
    "cloud-native/dcgm",
    "nvidia/driver",
    "nvidia/pytorch",
    "library/debian",
    "library/ubuntu",
    "library/nginx",
    "library/python",
    "grafana/promtail",
    "flannel/flannel",
    "cilium/cilium",
)
"""Ends of names of images that are built on busybox, Alpine, Debian or Ubuntu, as far as we know: none was tried here.
The smallest come first. Tags named distroless have no shell."""


def image_with_shell(images: Sequence[Sequence[str]]) -> str:
    """Return an image of the node that has a shell; empty if it has no known one.

    Args:
        images: The names of each image, as `node.status.images` lists them.
    """
    tagged = [name for names in images for name in names if "@" not in name and "distroless" not in name]
    return next((name for wanted in _WITH_SHELL for name in tagged if holds_image([name], wanted)), "")
