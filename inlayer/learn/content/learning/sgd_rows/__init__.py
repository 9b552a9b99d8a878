"""Task: teach only the rows that were looked up."""
