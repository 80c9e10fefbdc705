"""Tests that need a real GPU; `make test-gpu` runs them, and docs/metal.md says what they check."""
