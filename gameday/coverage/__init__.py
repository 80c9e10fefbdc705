"""The faults that would be noticed, how fast, and by which signal: runs in, a matrix and its gaps out. Pure."""
