"""Task "A table is born"."""
