"""The spread of a fleet: probe idle GPUs, compare their figures, name the slow ones and what they cost."""
