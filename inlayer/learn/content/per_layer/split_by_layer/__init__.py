"""Task "One vector per block"."""
