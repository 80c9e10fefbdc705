"""Collectors that fill a run's history and frames."""
