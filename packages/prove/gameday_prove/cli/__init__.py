"""The command `gameday prove`."""
