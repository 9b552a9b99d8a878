"""Task: a table cut by rows over processes."""
