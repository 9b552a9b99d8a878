"""Task "Pad a batch"."""
