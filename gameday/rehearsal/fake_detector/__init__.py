"""A stand-in for a foreign detector: it does in the rehearsal what the detector's profile says, and says what it is."""
