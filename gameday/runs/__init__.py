"""Many game-days: a season, a comparison of arms, detectors side by side, the reports folder; their records and pages."""
