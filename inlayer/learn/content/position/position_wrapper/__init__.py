"""Task "A wrapper with optional positions"."""
