"""Virtual GPU nodes: one process that plays the kubelets, the GPUs and the hosts of many machines.

They need only an API server, so they can join any cluster. Hardware and container runtime are virtual. The agent's
containers are real processes, which act on the model through the virtual host's endpoint.
"""

MAX_GPUS = 40
"""The most GPUs of a node: the PCI buses of the model's machine (`identity`)."""
MAX_CLIENT_NODES = 100
"""The most nodes without GPUs. Their load comes from processes of pods, and fills a machine of a few CPUs."""
