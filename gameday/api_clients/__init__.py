"""The simulated clients of the API server: their requests, their processes, and the log of every request.

An ordinary client library would hide what is measured here: after a 429 the official Python client's transport repeats
a request up to three times (docs/sources.md, API server: LISTs). These clients send each request once and log it. A
client that asks again after a 429 does so openly, as a second request in the log.
"""
