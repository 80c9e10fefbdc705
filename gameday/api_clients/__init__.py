"""The simulated clients of the API server: their requests, their processes, and the log of every request.

An ordinary client library would hide what is measured here: the official Python client's transport sends a request up
to three times more after a 429 (docs/sources.md, API server: LISTs). These clients send each request once and write
it down; one that asks again after a 429 does so openly, as a second request in the log.
"""
