"""Task "Words as ids"."""
