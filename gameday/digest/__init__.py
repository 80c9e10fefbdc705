"""Pages over many runs: the season in one page, and the list of everything in a reports folder."""
