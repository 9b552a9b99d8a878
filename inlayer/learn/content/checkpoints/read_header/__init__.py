"""Task "Read the header of a safetensors file"."""
