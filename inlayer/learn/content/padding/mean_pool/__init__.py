"""Task "Mean pooling"."""
