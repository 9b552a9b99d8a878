"""Task "One merge"."""
