"""Task "Initialize a table"."""
