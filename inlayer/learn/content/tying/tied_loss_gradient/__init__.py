"""Task "The two gradients of a tied table"."""
