"""Task "Rotate channel pairs"."""
