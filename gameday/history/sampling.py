"""The number of samples that a comparison needs, and the signs that samples are missing."""

from __future__ import annotations

FEWEST_BASELINE_SCRAPES = 8
"""Scrapes before the fault that show what is usual.

Of eight values of one normal distribution the robust sigma is still such that an untouched GPU shows a robust z beyond
4 in 1 to 3 of 100 draws; of five in 4 to 9, of three in 11 to 18 (20,000 draws each, one to five samples during).
"""
GAP_FACTOR = 3.0
"""A pause between two samples longer than this many usual ones is a gap: samples are missing."""
