"""What needs a real GPU; `make test-gpu` runs it, and docs/metal.md says what it checks."""
