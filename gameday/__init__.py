"""GPU game-days: break one GPU on purpose and measure whether anything notices."""

__version__ = "0.1.0"
