"""Task "Embeddings without a vocabulary"."""
