"""Task "Compute a sinusoidal encoding"."""
