"""A plan's arms beside each other: the record of a comparison, what its game-days amount to, and its page."""
