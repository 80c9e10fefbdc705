"""The programs a virtual machine has: what the agent runs on the host, acting on the model instead of the metal."""
