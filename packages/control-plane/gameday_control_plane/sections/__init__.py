"""Sections of the report about the control plane."""
