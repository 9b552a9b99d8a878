"""Task "Add learned positions"."""
