"""Task "Ids or vectors"."""
