"""Collectors that fill the history and the frames."""
