"""Prefect flows: the order of the steps, and nothing else."""
