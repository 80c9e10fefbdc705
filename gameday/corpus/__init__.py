"""Labelled cases for detectors: what a node shows, and what NVIDIA says that must be done about it."""
