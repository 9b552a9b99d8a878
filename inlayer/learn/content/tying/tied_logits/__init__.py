"""Task: a head that reads the table."""
