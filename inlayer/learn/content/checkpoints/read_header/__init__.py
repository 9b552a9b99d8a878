"""Task: read the header of a safetensors file."""
