"""A Kubernetes control plane in Python, for fast starts and fast tests."""

__version__ = "0.1.0"
