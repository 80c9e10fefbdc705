"""Virtual GPU nodes: one process that plays the kubelets, the GPUs and the hosts of up to a thousand machines.

They need nothing but an API server, so they can join any cluster. What is
virtual is the metal and the container runtime; the agent's containers are
real processes that act on the model through the virtual host's endpoint.
"""
