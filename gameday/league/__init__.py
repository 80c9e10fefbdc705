"""The league: detectors side by side, fault by fault, out of the seasons that each of them watched. Pure."""
