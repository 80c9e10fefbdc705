"""The plan: what a game-day believes, breaks, expects and puts back. Imports nothing of ours."""
