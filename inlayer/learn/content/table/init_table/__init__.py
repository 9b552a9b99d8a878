"""Task "A table is init_table"."""
