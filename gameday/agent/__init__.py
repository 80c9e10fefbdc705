"""The agent, a program in a pod on the GPU node: inject, hold, undo, remediate, sample NVML, QA.

It has no access to the Kubernetes API. Its task comes in as JSON, and it
answers by its readiness, its log and its termination message. It can therefore
take a fault out when nothing else is alive.
"""
