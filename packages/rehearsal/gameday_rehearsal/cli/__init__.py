"""The commands of virtual clusters, and what they share."""
