"""Task "The bytes of a text"."""
