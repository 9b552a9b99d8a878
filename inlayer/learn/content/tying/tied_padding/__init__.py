"""Task "Keep a tied padding row at zero"."""
