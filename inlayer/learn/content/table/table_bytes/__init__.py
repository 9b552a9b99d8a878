"""Task "The size of a table in bytes"."""
