"""The agent, a program in a pod on the GPU node: inject, hold, undo, remediate, sample NVML, QA.

It has no access to the Kubernetes API. Its task comes in as JSON, and it answers by its readiness, its log and its
termination message. So it can take a fault out when everything else is dead.
"""
