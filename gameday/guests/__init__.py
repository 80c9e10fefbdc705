"""Guests: real detectors, programs of others, that watch a rehearsal's cluster in place of ours."""
