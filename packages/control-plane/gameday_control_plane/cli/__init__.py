"""The command `gameday control-plane`."""
