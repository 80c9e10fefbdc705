"""This machine as a node: its real GPUs by NVML, its real kernel log, pods as processes on the real host."""

NODE = "metal-0"
"""Name of the node."""
