"""The reports folder: which runs and incidents it holds, where copies go, and what may be deleted."""
