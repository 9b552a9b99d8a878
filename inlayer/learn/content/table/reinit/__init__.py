"""Task "Reinitialize a table"."""
