"""A cluster in one process, one thread and no real time, fed by a script: the adapters of a game-day talk to it.

What is scripted is what no line of ours decides: how long a pod takes to start, when an alert fires, which answer is
lost. Everything above the wire is the product's own code, and the API server is kubesim's.
"""
