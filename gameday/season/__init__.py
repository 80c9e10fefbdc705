"""Many game-days at once under one lease: which plans, on which nodes, how many at a time, and what became of them."""
