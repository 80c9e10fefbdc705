"""A real incident, read from the cluster's own servers, and its page; nothing is injected or changed.

`collect` leaves a folder that `page` renders at any time and without a cluster.
"""
