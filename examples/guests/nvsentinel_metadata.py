#!/usr/bin/env python3
"""Print the GPU metadata that NVSentinel keeps of a node, from the configuration of the mock of NVML: NODE CONFIG.

A virtual node has no NVSwitch. The metadata gives it one, at the address that the shipped SXid plans name.
"""

import json
import sys
from pathlib import Path

SWITCH = "0000:c1:00.0"
LINKS = 18


def main() -> None:
    """Print the metadata as JSON."""
    node, config = sys.argv[1:]
    found = json.loads(Path(config).read_text())
    gpus = [
        {
            "gpu_id": device["index"],
            "uuid": device["uuid"],
            "pci_address": device["pci"]["bus_id"].lower(),
            "serial_number": device["serial"],
            "device_name": found["device_defaults"]["name"],
            "nvlinks": [
                {"link_id": link, "remote_pci_address": SWITCH, "remote_link_id": device["index"] * LINKS + link}
                for link in range(LINKS)
            ],
            "numa_node": 0,
        }
        for device in found["devices"]
    ]
    driver = found["system"]["driver_version"]
    whole = {"version": "1.0", "node_name": node, "driver_version": driver, "gpus": gpus, "nvswitches": [SWITCH]}
    print(json.dumps(whole, indent=1))


if __name__ == "__main__":
    main()
