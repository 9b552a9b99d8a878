"""Task "Draw again"."""
