"""What the cluster's own servers remember of a real incident, and its page. Reads only: nothing is injected or changed.

`collect` leaves a folder that `page` renders at any time and without a cluster.
"""
