"""Task "A lookup as a matrix product"."""
