"""A stand-in for a foreign detector: in the rehearsal it does what the detector's profile says, and says what it is."""
