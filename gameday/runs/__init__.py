"""Many game-days: a season, a comparison of arms, detectors side by side, the reports folder; records and pages."""
