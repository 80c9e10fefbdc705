"""The order of things, and nothing else."""
