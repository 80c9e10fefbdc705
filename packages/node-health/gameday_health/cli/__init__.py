"""The commands of `gameday health`."""
