"""Processes that die with us, and the Prefect server among them."""
