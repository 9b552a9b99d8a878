"""Task "Update only the rows that were looked up"."""
