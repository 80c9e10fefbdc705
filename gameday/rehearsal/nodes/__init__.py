"""Virtual GPU nodes: one process that plays the kubelets, the GPUs and the hosts of many machines.

They need nothing but an API server, so they can join any cluster. What is virtual is the metal and the container
runtime; the agent's containers are real processes that act on the model through the virtual host's endpoint.
"""

MAX_NODES = 5000
"""The most nodes; the same figure is the most that Kubernetes supports (kubernetes.io, Considerations for large
clusters)."""
MAX_GPUS = 40
"""The most GPUs of a node: PCI buses of the model's machine (`identity`)."""
MAX_CLIENT_NODES = 100
"""The most nodes without GPUs. Load comes from the processes of pods, so that a machine of a few CPUs fills one."""
