"""Guests: real third-party detectors that watch a rehearsal's cluster in place of ours."""
