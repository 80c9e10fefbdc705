"""The command `gameday fleet`."""
