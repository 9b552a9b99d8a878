"""Task "Compute the gradient of a table yourself"."""
