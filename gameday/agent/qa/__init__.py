"""QA of a node: read everything once (`readings`), then judge it with pure checks (`checks`)."""
