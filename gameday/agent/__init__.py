"""What runs in a pod on the GPU node: inject, hold, undo, remediate, sample NVML, QA.

It needs no Kubernetes API access: its task comes in as JSON, readiness and the
termination message are its only words to the cluster, so that the fault leaves
by itself when everybody else is dead.
"""
