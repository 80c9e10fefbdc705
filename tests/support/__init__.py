"""What several test folders share: runs, processes, waiting."""
