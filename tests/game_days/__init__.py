"""Whole game-days on the rehearsal cluster, with the real Prometheus and the real Prefect."""
