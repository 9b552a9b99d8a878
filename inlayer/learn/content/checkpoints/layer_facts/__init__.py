"""Task "Read the input layer's config"."""
