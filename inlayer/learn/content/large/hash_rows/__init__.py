"""Task: words without a vocabulary."""
