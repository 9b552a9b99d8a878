"""Task: what a config says of the input layer."""
