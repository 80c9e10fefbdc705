"""The embedded API server: enough of the Kubernetes HTTP API for kubectl, official clients and foreign controllers.

One process with one asyncio loop keeps the objects in memory and in an append-only log. Handlers read, decide and write
without awaiting in between, so every request is atomic without locks.
"""
