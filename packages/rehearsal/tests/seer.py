"""A detector for tests, with the standard library alone: `seer.py NODE KMSG [stubborn]` taints its node for an Xid 79.

A stubborn one puts the taint back as long as it lives, as a detector does that still reads the line.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
import threading
import time
import urllib.request
from pathlib import Path

TAINT = {"key": "trainy.konduktor.ai/faulty", "value": "true", "effect": "NoSchedule"}


_PUTS_BACK_EVERY_S = 0.2


def main(node: str, kmsg: str, manner: str = "") -> None:
    """Read records until the pipe ends, as it does when the node goes down."""
    print(f"watching {node}", flush=True)
    with Path(kmsg).open("rb", buffering=0) as log:
        while record := log.read(8192):
            if b"Xid" in record and b": 79," in record:
                print(f"{node} is unhealthy: {record.decode('ascii').strip()}", flush=True)
                taint(node)
                if manner == "stubborn":
                    threading.Thread(target=keep_tainted, args=(node,), daemon=True).start()


def keep_tainted(node: str) -> None:
    """Put the taint back whenever somebody has taken it off."""
    while True:
        time.sleep(_PUTS_BACK_EVERY_S)
        taint(node)


def taint(node: str) -> None:
    """Add the taint, by the account of KUBECONFIG."""
    config = json.loads(Path(os.environ["KUBECONFIG"]).read_text("utf-8"))
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    inline = cluster.get("certificate-authority-data")
    tls = ssl.create_default_context(
        cafile=cluster.get("certificate-authority"), cadata=base64.b64decode(inline).decode() if inline else None
    )
    request = urllib.request.Request(
        f"{cluster['server']}/api/v1/nodes/{node}",
        json.dumps({"spec": {"taints": [TAINT]}}).encode(),
        {
            "Authorization": f"Bearer {user['token']}",
            "Content-Type": "application/strategic-merge-patch+json",
        },
        method="PATCH",
    )
    with urllib.request.urlopen(request, context=tls, timeout=10) as answer:
        print(f"tainted {node}: {answer.status}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
