"""One file per fault. Every module here that defines a `Fault` subclass is found by `registry`."""
