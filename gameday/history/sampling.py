"""The number of samples that a comparison needs, and the signs that samples are missing."""

from __future__ import annotations

FEWEST_BASELINE_SCRAPES = 8
"""Scrapes before the fault that show the usual values.

With eight values of one normal distribution, an untouched GPU shows a robust z above 4 in 1 to 3 of 100 draws; with
five in 4 to 9, with three in 11 to 18 (20,000 draws each, one to five samples during the fault)."""
GAP_FACTOR = 3.0
"""A pause between two samples longer than this many usual ones is a gap: samples are missing."""
