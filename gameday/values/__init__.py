"""Value types that all rooms use: nodes and their taints, steps, hops, cleanliness."""
