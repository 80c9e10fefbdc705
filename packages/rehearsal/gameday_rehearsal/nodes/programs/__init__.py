"""The programs of a virtual machine: what the agent runs on the host, acting on the model instead of the hardware."""
