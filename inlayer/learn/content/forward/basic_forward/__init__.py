"""Task "A first forward pass"."""
