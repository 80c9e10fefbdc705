"""Tests of the rehearsal's scheduler and controllers."""
