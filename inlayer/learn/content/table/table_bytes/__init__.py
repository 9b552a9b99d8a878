"""Task "How many bytes"."""
