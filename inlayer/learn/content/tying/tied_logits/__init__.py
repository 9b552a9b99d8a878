"""Task "A head that reads the table"."""
