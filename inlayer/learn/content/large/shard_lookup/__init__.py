"""Task "A table sharded by rows"."""
