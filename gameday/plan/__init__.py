"""The plan: what a game-day believes, breaks, expects and repairs."""
