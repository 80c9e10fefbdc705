"""The host boundary: the only way the agent reaches the machine it runs on.

`RealHost` is a GPU node; `VirtualHost` reaches the model of one in a
rehearsal. Everything above this boundary is the same program in both.
"""
