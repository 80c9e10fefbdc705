"""Value types that every room speaks of: nodes and their taints, steps, hops, cleanliness."""
