"""Task "A lookup is a product"."""
