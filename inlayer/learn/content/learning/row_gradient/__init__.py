"""Task: the gradient of a table, by hand."""
