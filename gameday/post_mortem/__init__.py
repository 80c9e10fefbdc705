"""A real incident, read from the cluster's own servers, and its page. Nothing is injected or changed.

`collect` leaves a folder from which `page` can render at any time, without a cluster.
"""
